#include "trace.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "env.h"
#include "log.h"
#include "pace.h"
#include "sys.h"
#include "words.h"

#define VARIABLE "VGPU_TRACE"
#define WORD     "pace"

bool trace_is_on;

static struct trace_file *file;                  /* set before trace_is_on */
static const struct vgpu_region_device *devices; /* the region's; likewise */
static PACE_OF_THREAD uint32_t thread;           /* its gettid, 0: not asked yet */

/* One word of them, with commas in between: others may come to mean something. */
static bool is_asked_for(void)
{
	const char *at = env_get(VARIABLE);
	size_t len;

	for (; at && *at; at += len + (at[len] == ',')) {
		len = strcspn(at, ",");
		if (len == strlen(WORD) && memcmp(at, WORD, len) == 0)
			return true;
	}
	return false;
}

/* All of it is written, so that no later store finds the file system full. */
static int fill(int fd, const struct region *region)
{
	struct trace_file *empty;
	int error = sys_map_private(sizeof(*empty), (void **)&empty);

	if (error)
		return error;
	empty->magic = TRACE_MAGIC;
	empty->entry_size = sizeof(struct trace_entry);
	empty->entry_count = TRACE_ENTRIES;
	empty->pid = sys_getpid();
	empty->slot = (uint32_t)region->slot;
	empty->begun = clock_steady_ns();
	error = sys_write_all(fd, empty, sizeof(*empty));
	sys_unmap(empty, sizeof(*empty));
	return error ? error : sys_map_shared(fd, sizeof(*file), true, (void **)&file);
}

void trace_begin(const struct region *region)
{
	static char path[4096 + sizeof(TRACE_SUFFIX) + 16];
	int fd, error;

	if (!is_asked_for() || region->slot < 0)
		return;
	snprintf(path, sizeof(path), "%s" TRACE_SUFFIX "%d", region->path, region->slot);
	sys_unlink(
		path); /* of a process that had the slot before; what is not gone is found below */
	fd = error = sys_open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (fd >= 0) {
		error = fill(fd, region);
		sys_close(fd);
	}
	if (error < 0) {
		log_line(LOG_WARN, VARIABLE " is set, and %.400s cannot be made: %s", path,
			 strerror(-error));
		return;
	}
	devices = region->file->own.device;
	__atomic_store_n(&trace_is_on, true, __ATOMIC_RELEASE);
}

void trace_forget(void)
{
	trace_is_on = false;
	if (file)
		sys_unmap(file, sizeof(*file));
	file = NULL;
	thread = 0;
}

/* The last four bytes of an entry, which are stored together. */
typedef uint32_t __attribute__((may_alias)) last_word;

static last_word last_word_of(uint16_t lap, enum trace_kind kind, int device)
{
	struct trace_entry entry = {.lap = lap, .kind = (uint8_t)kind, .device = (int8_t)device};

	return *(last_word *)(void *)&entry.lap;
}

void trace_add(enum trace_kind kind, int device, int64_t a, int64_t b)
{
	uint64_t number = __atomic_fetch_add(&file->next, 1, __ATOMIC_RELAXED);
	struct trace_entry *entry = &file->entry[number % TRACE_ENTRIES];
	last_word *last = (last_word *)(void *)&entry->lap;

	if (!thread)
		thread = (uint32_t)sys_gettid();
	STORE(*last, 0);
	__atomic_thread_fence(__ATOMIC_RELEASE); /* with the store below, as the file format says */
	STORE(entry->at, clock_steady_ns());
	STORE(entry->a, a);
	STORE(entry->b, b);
	STORE(entry->thread, thread);
	__atomic_store_n(last, last_word_of((uint16_t)(number / TRACE_ENTRIES), kind, device),
			 __ATOMIC_RELEASE);
}

void trace_add_of(enum trace_kind kind, const struct vgpu_region_bucket *bucket, int64_t a,
		  int64_t b)
{
	const char *at = (const char *)bucket, *first = (const char *)devices;
	size_t device = (size_t)(at - first) / sizeof(*devices);

	trace_add(kind, at >= first && device < VGPU_DEVICES_MAX ? (int)device : -1, a, b);
}
