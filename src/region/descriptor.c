/*
 * File descriptors that keep memory on the device (of exported VMM allocations, pools and
 * DMA-BUFs): which memory one is of, and whether any is left, in whatever process, or on its way to
 * one.
 *
 * How it works. All descriptors of one piece of memory have one key: a number that is never used
 * again, as it comes from the process's random bytes, its pid, the clock and a counter. Each
 * exported open file has a shared open-file-description lock on a byte of its own, the key plus a
 * number from 1 to 63, far beyond the end of any file. The kernel drops that lock with the last
 * descriptor of the open file, wherever dup(2), fork(2) or a socket took it. So some descriptor is
 * left if and only if another open file of the same inode finds one of the key's bytes locked.
 * Each process that uses the driver has that inode open, and opens it once more to ask; an onlooker
 * opens it by way of somebody who lives in the region.
 *
 * A descriptor is of a key if its byte is locked, but for itself by nobody. Its number is a mark on
 * the open file (sys_mark_file). Two open files of a key that have the same number are of no key:
 * then whoever imports one counts it.
 *
 * A DMA-BUF has an inode of its own and cannot be opened again, and its file may be open in some
 * other process alone. Then /proc/locks is left, which has the locks of all processes. To read it
 * takes the kernel long and keeps everybody from locking, so it is read once a second at most, for
 * all keys at once (region_descriptors_listed). The kernel writes it page by page and can miss a
 * lock where others come or go in between: a lock is gone if two readings in a row have not got it.
 * Where nothing can be learnt, the answer is that a descriptor may be left.
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
#define NUMBERS 64                  /* that a key has; the first is the key itself, and unused */

#define FILES_SEVERAL    1 /* a `file` that none is of */
#define ONLOOKER_LOOKS   8 /* at the descriptors of so many processes */
#define LIST_INTERVAL_NS NS_PER_S
#define READINGS         2

static uint64_t list_next_ns; /* atomic */
static unsigned exports;      /* atomic: how many this process has marked */

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

/* The open file that a path in /proc names, once more and apart from it. */
static int open_again(const char *path)
{
	return sys_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
}

struct search {
	uint32_t file;
	char directory[32]; /* of a process's descriptors */
	int fd;             /* opened again, or negative */
};

/* To open a pipe may have effects of its own; the driver's files are devices. */
static bool is_harmless(const struct stat *st)
{
	return S_ISCHR(st->st_mode) || S_ISREG(st->st_mode);
}

/* For sys_list_directory: stops at the first that is of the file. */
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
		sys_close(search->fd); /* another took its number meanwhile */
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

/* The same among the descriptors of those who live in the region: for an onlooker. */
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
	bool any; /* lock of an open file: that they are listed at all */
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
			kept = 0; /* no line is so long */
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

/* Whether the byte is locked by fd's open file: another finds it so, and it does not itself. */
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
