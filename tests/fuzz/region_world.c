/*
 * How it works. The region's calls of sys_open, sys_fstat, sys_map_shared, sys_unmap and the clocks
 * come here, by the linker's --wrap; other system calls are asked about through sys_fault.
 *
 * The file is a memfd, opened anew by /proc/self/fd each time: so each struct region has an open
 * file of its own, with locks of its own, and stands for a process. O_CREAT and O_EXCL are done
 * here, since that name is there always; O_NOFOLLOW is not wanted, since that name is a link.
 *
 * A wait, for the lock or in a poll, fails at once and moves the clock on by part of a process's
 * patience. So a lock word that names a living slot costs some microseconds, not two seconds, and
 * still is waited for.
 *
 * A mapping lies in the middle of addresses that cannot be touched, as far as any 32-bit index of
 * an array of the region's reaches. An index that passes its array and stays in the file is
 * UBSan's to see.
 */
#include "region_world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "region_internal.h"
#include "sys.h"

#define PAGE      4096
#define GUARD     ((size_t)1 << 38) /* 2^32 of the shares, 2^27 of the slots */
#define WAIT_NS   (REGION_LOCK_PATIENCE_NS / 4)
#define MOST_WORK 200000 /* system calls and steps: every slot asked about, a few times over */
/* A charge waits for the lock, to reap, and to try again; a close once more. */
#define MOST_NS (4 * REGION_LOCK_PATIENCE_NS)

static int memory = -1; /* the memfd */
static bool missing;    /* there is no file */
static uint64_t now_ns = NS_PER_S, began_ns;
static unsigned work;
static void (*at_step)(void); /* called once, at the step that comes steps_left from now */
static unsigned steps_left;

static char saved[WORLD_SIZE]; /* the file as world_save found it */
static char *mapped;           /* the file, for us: never touched beyond its end */

uint64_t __wrap_clock_now_ns(void);
uint64_t __wrap_clock_coarse_ns(void);
int __wrap_sys_open(const char *path, int flags, unsigned mode);
int __wrap_sys_open_regular(const char *path, int flags);
int __wrap_sys_fstat(int fd, struct stat *ret_stat);
int __wrap_sys_stat(const char *path, struct stat *ret_stat);
int __wrap_sys_map_shared(int fd, size_t len, bool writable, void **ret_addr);
int __wrap_sys_unmap(void *addr, size_t len);

void must(bool holds)
{
	if (!holds)
		abort();
}

/* -- time and work ----------------------------------------------------------------------------- */

uint64_t __wrap_clock_now_ns(void)
{
	return now_ns;
}

uint64_t __wrap_clock_coarse_ns(void)
{
	return now_ns;
}

static void count_work(void)
{
	must(++work <= MOST_WORK);
}

static long ask(long number)
{
	count_work();
	if (number != SYS_futex && number != SYS_nanosleep)
		return 0;
	now_ns += WAIT_NS;
	must(now_ns - began_ns <= MOST_NS);
	return -ETIMEDOUT;
}

static void step(enum region_step at)
{
	void (*call)(void) = at_step;

	(void)at;
	count_work();
	if (!call || steps_left-- > 0)
		return;
	at_step = NULL;
	call();
}

void world_at_step(unsigned steps, void (*call)(void))
{
	at_step = call;
	steps_left = steps;
}

void world_begin(void)
{
	work = 0;
	began_ns = now_ns;
}

void world_end(void)
{
	must(now_ns - began_ns <= MOST_NS);
}

/* -- mappings ---------------------------------------------------------------------------------- */

int __wrap_sys_map_shared(int fd, size_t len, bool writable, void **ret_addr)
{
	char *all = mmap(NULL, GUARD + len + GUARD, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	void *addr;

	must(all != MAP_FAILED && len == WORLD_SIZE);
	addr = mmap(all + GUARD, len, writable ? PROT_READ | PROT_WRITE : PROT_READ,
		    MAP_SHARED | MAP_FIXED, fd, 0);
	must(addr == all + GUARD);
	*ret_addr = addr;
	return 0;
}

int __wrap_sys_unmap(void *addr, size_t len)
{
	must(munmap((char *)addr - GUARD, GUARD + len + GUARD) == 0);
	return 0;
}

/* -- the file ---------------------------------------------------------------------------------- */

int __wrap_sys_open(const char *path, int flags, unsigned mode)
{
	char name[32];
	int fd;

	(void)mode;
	count_work();
	if (strcmp(path, "/proc/locks") ==
	    0) /* what others on the machine do is not of this world */
		return open("/dev/null", flags | O_CLOEXEC);
	if (strncmp(path, "/proc/", 6) == 0) {
		fd = open(path, flags | O_CLOEXEC);
		return fd < 0 ? -errno : fd;
	}
	must(strcmp(path, WORLD_PATH) == 0);
	if (missing && !(flags & O_CREAT))
		return -ENOENT;
	if (!missing && (flags & O_EXCL))
		return -EEXIST;
	missing = false;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", memory);
	fd = open(name, (flags & ~(O_CREAT | O_EXCL | O_NOFOLLOW)) | O_CLOEXEC);
	must(fd >= 0);
	return fd;
}

int __wrap_sys_open_regular(const char *path, int flags)
{
	return __wrap_sys_open(path, flags, 0);
}

/* A memfd has no name, and a file without one has been deleted. */
int __wrap_sys_fstat(int fd, struct stat *ret_stat)
{
	count_work();
	if (fstat(fd, ret_stat) != 0)
		return -errno;
	ret_stat->st_nlink = 1;
	return 0;
}

int __wrap_sys_stat(const char *path, struct stat *ret_stat)
{
	if (strcmp(path, WORLD_PATH) == 0)
		return missing ? -ENOENT : __wrap_sys_fstat(memory, ret_stat);
	count_work();
	return stat(path, ret_stat) == 0 ? 0 : -errno;
}

void world_make(void)
{
	memory = memfd_create("vgpu-fuzz", MFD_CLOEXEC);
	must(memory >= 0);
	missing = true;
	sys_fault = ask;
	region_step_hook = step;
}

void world_remove(void)
{
	must(ftruncate(memory, 0) == 0);
	missing = true;
}

void world_resize(uint64_t size)
{
	must(ftruncate(memory, (off_t)size) == 0);
	missing = false;
}

size_t world_size(void)
{
	struct stat st;

	must(fstat(memory, &st) == 0);
	return (size_t)st.st_size;
}

void world_save(void)
{
	mapped = mmap(NULL, WORLD_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	must(mapped != MAP_FAILED && world_size() == WORLD_SIZE);
	memcpy(saved, mapped, WORLD_SIZE);
}

/* What is as it was stays in its pages: to make these anew took longer than all the rest. */
void world_restore(void)
{
	if (world_size() != WORLD_SIZE || missing)
		world_resize(WORLD_SIZE);
	for (size_t at = 0; at < WORLD_SIZE; at += PAGE)
		if (memcmp(mapped + at, saved + at, PAGE) != 0)
			memcpy(mapped + at, saved + at, PAGE);
}

void world_write(size_t offset, const void *bytes, size_t len)
{
	size_t size = world_size();

	if (size > WORLD_SIZE)
		size = WORLD_SIZE;
	if (offset >= size)
		return;
	memcpy(mapped + offset, bytes, len < size - offset ? len : size - offset);
}
