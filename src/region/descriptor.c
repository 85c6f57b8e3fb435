/*
 * File descriptors that keep memory on the device: those of exported VMM allocations, pools and
 * DMA-BUFs. This file finds out which memory a descriptor is of, and whether any descriptor of some
 * memory is left, in any process or in a message on a socket.
 *
 * How it works. All descriptors of one piece of memory have one key. This number is never used
 * again, because it is made of the process's random bytes, its pid, the clock and a counter. Each
 * exported open file has a shared open-file-description lock on a byte of its own. The byte is the
 * key plus a number from 1 to 63, far beyond the end of any file. The kernel drops that lock with
 * the last descriptor of the open file, wherever dup(2), fork(2) or a socket took it. So a
 * descriptor is left if and only if another open file of the same inode finds one of the key's
 * bytes locked. Each process that uses the driver has that inode open, and opens it once more to
 * ask. An onlooker opens it through /proc of a process that lives in the region.
 *
 * A descriptor is of a key if its open file is the only one that has its byte locked. The number of
 * the byte is a mark on the open file (sys_mark_file). If two open files have the same key and the
 * same number, they count as having no key, and a process that imports one is charged for it.
 *
 * A DMA-BUF has an inode of its own and cannot be opened again, and its file may be open in other
 * processes only. For these, /proc/locks is read, which has the locks of all processes. The kernel
 * takes long for that file, and no process can lock meanwhile. So it is read once a second at most,
 * for all keys at once (region_descriptors_listed). The kernel writes it page by page, and can omit
 * a lock if others come or go in between. So a lock is gone if two readings in a row do not have
 * it. If nothing can be found out, the answer is that a descriptor may be left.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

#include "fields.h"
#include "region_internal.h"
#include "sys.h"

#define KEY_BIT ((uint64_t)1 << 62) /* keys are offsets in a file: the highest bit is 0 */
#define NUMBERS 64                  /* of a key; number 0 is the key itself, and unused */

#define FILES_SEVERAL    1 /* a value of `file` that no file has */
#define ONLOOKER_LOOKS   8 /* processes whose descriptors an onlooker looks at */
#define LIST_INTERVAL_NS NS_PER_S
#define READINGS         2

static uint64_t list_next_ns; /* atomic */
static unsigned exports;      /* atomic: how many files this process has marked */

static uint64_t mix(uint64_t word)
{
	word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
	word = (word ^ word >> 27) * 0x94d049bb133111ebu;
	return word ^ word >> 31;
}

static uint64_t new_key(unsigned count)
{
	const void *bytes = (const void *)getauxval(AT_RANDOM); /* 16, not aligned */
	uint64_t random[2] = {0, 0}, key;

	if (bytes)
		memcpy(random, bytes, sizeof(random));
	key = mix(random[0]) ^ random[1];
	key = mix(key ^ (uint64_t)sys_getpid() << 32 ^ count);
	key = mix(key ^ clock_now_ns());
	return KEY_BIT | (key & (KEY_BIT - 1) & ~(uint64_t)(NUMBERS - 1));
}

bool region_is_descriptor_key(uint64_t key)
{
	return key >> 62 == 1 && key % NUMBERS == 0;
}

static uint32_t hash_of(const struct stat *st)
{
	return (uint32_t)mix(mix(st->st_dev) ^ st->st_ino) | 2;
}

uint32_t region_descriptor_file(int fd)
{
	struct stat st;

	return sys_fstat(fd, &st) == 0 ? hash_of(&st) : 0;
}

int region_descriptor_mark(int fd, struct region_descriptors *descriptors)
{
	unsigned count = __atomic_fetch_add(&exports, 1, __ATOMIC_RELAXED);
	struct region_descriptors marked = *descriptors;
	int number = 1 + (int)(((unsigned)sys_getpid() + count) % (NUMBERS - 1)), error;

	if (!marked.key)
		marked = (struct region_descriptors){new_key(count), region_descriptor_file(fd)};
	if (marked.file != region_descriptor_file(fd))
		marked.file = FILES_SEVERAL;
	error = sys_share_byte(fd, marked.key + (unsigned)number);
	if (!error)
		error = sys_mark_file(fd, number);
	if (!error)
		*descriptors = marked;
	return error;
}

/* -- asking ------------------------------------------------------------------------------------ */

/* Opens the file again that a path in /proc names, as another open file. */
static int open_again(const char *path)
{
	return sys_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
}

struct search {
	uint32_t file;
	char directory[32]; /* the directory in /proc of a process's descriptors */
	int fd;             /* of the file, opened again; or negative */
};

/* Opening a pipe may have effects. The driver's files are devices. */
static bool is_harmless(const struct stat *st)
{
	return S_ISCHR(st->st_mode) || S_ISREG(st->st_mode);
}

/* For sys_list_directory: stops at the first descriptor of the file. */
static int look_at_fd(void *arg, const char *name)
{
	struct search *search = arg;
	char path[sizeof(search->directory) + 16];
	struct stat st;

	if (snprintf(path, sizeof(path), "%s/%s", search->directory, name) >= (int)sizeof(path) ||
	    sys_stat(path, &st) != 0 || hash_of(&st) != search->file || !is_harmless(&st))
		return 0;
	search->fd = open_again(path);
	if (search->fd >= 0 && region_descriptor_file(search->fd) != search->file) {
		sys_close(search->fd); /* the number is another file's by now */
		search->fd = -1;
	}
	return search->fd >= 0;
}

static bool find(struct search *search, int pid)
{
	if (pid)
		snprintf(search->directory, sizeof(search->directory), "/proc/%d/fd", pid);
	else
		snprintf(search->directory, sizeof(search->directory), "/proc/self/fd");
	return sys_list_directory(search->directory, look_at_fd, search) == 1;
}

/* For an onlooker: searches the descriptors of processes that live in the region. */
static bool find_elsewhere(struct region *region, struct search *search)
{
	uint64_t ours = region->slot < 0 ? region_pid_namespace() : 0;
	unsigned looks = ours ? ONLOOKER_LOOKS : 0;

	for (int slot = -1; looks && (slot = region_next_slot(region->file, slot)) >= 0;) {
		if (REGION_LOAD(region->file->own.slots[slot].pid_namespace) != ours ||
		    !region_slot_alive(region, (unsigned)slot))
			continue;
		if (find(search, REGION_LOAD(region->file->hami.slots[slot].pid)))
			return true;
		looks--;
	}
	return false;
}

int region_descriptors_left(struct region *region, const struct region_descriptors *descriptors)
{
	struct search search = {.file = descriptors->file, .fd = -1};
	int left;

	if (!search.file || (!find(&search, 0) && !find_elsewhere(region, &search)))
		return -ENOENT;
	left = sys_bytes_are_locked(search.fd, descriptors->key, NUMBERS);
	sys_close(search.fd);
	return left;
}

/* -- /proc/locks: "1: OFDLCK ADVISORY  READ -1 00:0b:1234 4611686018427387905 …" a line ---------
 */

struct listing {
	const uint64_t *keys;
	size_t count;
	bool *found;
	bool any; /* a lock of an open file was listed, so such locks are listed here */
};

static void look_at_line(struct listing *listing, const char *line)
{
	uint64_t byte;

	if (!strstr(line, " OFDLCK "))
		return;
	listing->any = true;
	byte = field_number(line, 6);
	for (size_t i = 0; i < listing->count; i++)
		if (byte - listing->keys[i] < NUMBERS)
			listing->found[i] = true;
}

static int read_locks(struct listing *listing)
{
	char buf[4096 + 1], *line, *end;
	int fd = sys_open("/proc/locks", O_RDONLY, 0);
	size_t kept = 0;
	long len = fd < 0 ? fd : 0;

	while (fd >= 0 && (len = sys_read(fd, buf + kept, sizeof(buf) - 1 - kept)) > 0) {
		buf[kept + (size_t)len] = '\0';
		for (line = buf; (end = strchr(line, '\n')); line = end + 1) {
			*end = '\0';
			look_at_line(listing, line);
		}
		kept = strlen(line);
		if (kept == sizeof(buf) - 1)
			kept = 0; /* no line of a lock is that long */
		memmove(buf, line, kept);
	}
	if (fd >= 0)
		sys_close(fd);
	return (int)len;
}

int region_descriptors_listed(const uint64_t *keys, size_t count, bool *ret_found)
{
	struct listing listing = {keys, count, ret_found, false};
	uint64_t now = clock_coarse_ns(), next = __atomic_load_n(&list_next_ns, __ATOMIC_RELAXED);
	int error = 0;

	if (now < next || !__atomic_compare_exchange_n(&list_next_ns, &next, now + LIST_INTERVAL_NS,
						       false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return -EAGAIN;
	memset(ret_found, 0, count * sizeof(*ret_found));
	for (unsigned i = 0; i < READINGS && !error; i++)
		error = read_locks(&listing);
	return error ? error : listing.any ? 0 : -ENOENT;
}

/* Whether fd's open file has the byte locked: another open file finds the byte locked, and fd does
 * not. */
static bool is_of(int fd, int again, uint64_t byte)
{
	return sys_byte_is_locked(fd, byte) == 0 && sys_byte_is_locked(again, byte) == 1 &&
	       sys_byte_is_locked(fd, byte) == 0;
}

uint64_t region_descriptor_key(struct region *region, int fd)
{
	unsigned count = region_watch(region) == 0 ? region_shares_in_use(region->file) : 0;
	uint64_t found = 0;
	int pid, number, again;
	char path[32];

	if (sys_read_mark(fd, &pid, &number) != 0 || number < 1 || number >= NUMBERS)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open_again(path);
	for (unsigned i = 0; again >= 0 && i < count && !found; i++) {
		const struct vgpu_region_share *share = &region->file->own.shares[i];
		uint64_t key = REGION_LOAD(share->key);

		if (region_share_is_charge(share) && region_is_descriptor_key(key) &&
		    is_of(fd, again, key + (unsigned)number))
			found = key;
	}
	if (again >= 0)
		sys_close(again);
	return found;
}
