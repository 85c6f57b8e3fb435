/*
 * How it works. The file is made, and wholly written, before the first entry, so that no later
 * store finds the file system full; then it is mapped. An entry takes the next number and goes to
 * that number's place (trace_file.h says when it is whole).
 *
 * Names of calls. A thread keeps the name of the driver's function that it is in. The first entry
 * that needs a name puts it into the file, and later entries have the name's number. Names are
 * literals, and their addresses distinguish them.
 *
 * If the process is killed on any line, the file has what was written until then.
 */
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "env.h"
#include "lock.h"
#include "relaxed.h"
#include "sys.h"

#define VARIABLE  "VGPU_TRACE"
#define OF_THREAD _Thread_local __attribute__((tls_model("initial-exec")))

uint32_t trace_subjects = TRACE_UNDECIDED;

static struct trace_file *file;                  /* set before trace_subjects */
static const struct vgpu_region_device *devices; /* the region's; likewise */
static OF_THREAD uint32_t thread;                /* its gettid, 0: not asked yet */
static OF_THREAD const char *call;               /* that the thread is in, or NULL */

static struct fault failed; /* written by trace_begin */

static struct lock naming = LOCK_INIT;
static const char *named[TRACE_CALLS]; /* [0] is none; written under `naming`, each once */

/* -- beginning --------------------------------------------------------------------------------- */

static uint32_t subject_of(const char *word, size_t len)
{
	static const char *const words[] = {
#define SUBJECT(name, word) [TRACE_##name] = word,
		TRACE_SUBJECTS(SUBJECT)
#undef SUBJECT
	};

	for (unsigned i = 0; i < TRACE_SUBJECT_COUNT; i++)
		if (strlen(words[i]) == len && memcmp(words[i], word, len) == 0)
			return 1u << i;
	return 0;
}

/* The variable has words with commas in between. Unknown ones are passed over. */
static uint32_t asked_for(void)
{
	const char *at = env_get(VARIABLE);
	uint32_t subjects = 0;
	size_t len;

	for (; at && *at; at += len + (at[len] == ',')) {
		len = strcspn(at, ",");
		subjects |= subject_of(at, len);
	}
	return subjects;
}

static int fill(int fd, int slot)
{
	struct trace_file *empty;
	int error = sys_map_private(sizeof(*empty), (void **)&empty);

	if (error)
		return error;
	empty->magic = TRACE_MAGIC;
	empty->entry_size = sizeof(struct trace_entry);
	empty->entry_count = TRACE_ENTRIES;
	empty->pid = sys_getpid();
	empty->slot = (uint32_t)slot;
	empty->begun = clock_steady_ns();
	error = sys_write_all(fd, empty, sizeof(*empty));
	sys_unmap(empty, sizeof(*empty));
	return error ? error : sys_map_shared(fd, sizeof(*file), true, (void **)&file);
}

void trace_begin(const char *path, int slot, const struct vgpu_region_device *of_region)
{
	static char name[4096 + sizeof(TRACE_SUFFIX) + 16];
	uint32_t subjects = asked_for();
	int fd, error;

	if (RELAXED_LOAD(trace_subjects) != TRACE_UNDECIDED || slot < 0)
		return;
	RELAXED_STORE(trace_subjects, 0);
	if (!subjects)
		return;
	snprintf(name, sizeof(name), "%s" TRACE_SUFFIX "%d", path, slot);
	/* That of a process that had the slot before. One that stays is found below. */
	sys_unlink(name);
	fd = error = sys_open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (fd >= 0) {
		error = fill(fd, slot);
		sys_close(fd);
	}
	if (error < 0) {
		fault_set(&failed, error, VARIABLE " is set, and %.400s cannot be made: %s", name,
			  strerror(-error));
		return;
	}
	devices = of_region;
	__atomic_store_n(&trace_subjects, subjects, __ATOMIC_RELEASE);
}

const struct fault *trace_fault(void)
{
	return *failed.text ? &failed : NULL;
}

void trace_forget(void)
{
	RELAXED_STORE(trace_subjects, TRACE_UNDECIDED);
	if (file)
		sys_unmap(file, sizeof(*file));
	file = NULL;
	thread = 0;
	call = NULL;
	failed = (struct fault){""};
	lock_init(&naming);
	memset(named, 0, sizeof(named));
}

/* -- calls ------------------------------------------------------------------------------------- */

void trace_set_call(const char *name)
{
	call = name;
}

/* Where the name is; the first free place where it is nowhere; or TRACE_CALLS. */
static unsigned find_name(const char *name)
{
	unsigned i = 1;

	while (i < TRACE_CALLS) {
		/* Pairs with the release in number_of. */
		const char *other = __atomic_load_n(&named[i], __ATOMIC_ACQUIRE);

		if (!other || other == name)
			break;
		i++;
	}
	return i;
}

/* A signal handler may have interrupted the thread that holds the lock. So no thread waits for the
 * lock, and an entry may lack its name. */
static uint16_t number_of(const char *name)
{
	unsigned number;

	if (!name)
		return 0;
	number = find_name(name);
	if (number < TRACE_CALLS && named[number] == name)
		return (uint16_t)number;
	if (!lock_try(&naming))
		return 0;
	number = find_name(name);
	if (number < TRACE_CALLS) {
		snprintf(file->call[number], TRACE_CALL_LEN, "%s", name);
		__atomic_store_n(&named[number], name, __ATOMIC_RELEASE);
	}
	lock_release(&naming);
	return number < TRACE_CALLS ? (uint16_t)number : 0;
}

/* -- entries ----------------------------------------------------------------------------------- */

/* The last four bytes of an entry, which are stored together. */
typedef uint32_t __attribute__((may_alias)) last_word;

static last_word last_word_of(uint16_t lap, enum trace_kind kind, int device)
{
	struct trace_entry entry = {.lap = lap, .kind = (uint8_t)kind, .device = (int8_t)device};

	return *(last_word *)(void *)&entry.lap;
}

void trace_add_event(const struct trace_event *event)
{
	bool is_of_call = trace_subject_of(event->kind) != TRACE_PACE;
	uint16_t name = is_of_call ? number_of(call) : 0;
	uint64_t number = __atomic_fetch_add(&file->next, 1, __ATOMIC_RELAXED);
	struct trace_entry *entry = &file->entry[number % TRACE_ENTRIES];
	last_word *last = (last_word *)(void *)&entry->lap;

	if (!thread)
		thread = (uint32_t)sys_gettid();
	RELAXED_STORE(*last, 0);
	__atomic_thread_fence(__ATOMIC_RELEASE); /* with the store below, as the file format says */
	RELAXED_STORE(entry->at, clock_steady_ns());
	RELAXED_STORE(entry->a, event->a);
	RELAXED_STORE(entry->b, event->b);
	RELAXED_STORE(entry->c, event->c);
	RELAXED_STORE(entry->thread, thread);
	RELAXED_STORE(entry->call, name);
	RELAXED_STORE(entry->reason, (uint8_t)event->reason);
	RELAXED_STORE(entry->class, (uint8_t)event->class);
	__atomic_store_n(
		last, last_word_of((uint16_t)(number / TRACE_ENTRIES), event->kind, event->device),
		__ATOMIC_RELEASE);
}

void trace_add(enum trace_kind kind, int device, int64_t a, int64_t b)
{
	struct trace_event event = {.kind = kind, .device = device, .a = a, .b = b};

	trace_add_event(&event);
}

void trace_add_of(enum trace_kind kind, const struct vgpu_region_bucket *bucket, int64_t a,
		  int64_t b)
{
	const char *at = (const char *)bucket, *first = (const char *)devices;
	size_t device = (size_t)(at - first) / sizeof(*devices);

	trace_add(kind, at >= first && device < VGPU_DEVICES_MAX ? (int)device : -1, a, b);
}
