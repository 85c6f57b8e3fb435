/*
 * Waits until the kernel has removed a dead child completely. The parent learns of a death when
 * the child's descriptors are closed, but the child's memory and mappings may exist longer. A
 * process that reads the child's /proc/pid/maps at that moment keeps both until it has read on,
 * which may take a while on a busy machine. (The library reads this file where it makes a
 * region.) Until then the child's locks are held, and it seems to live.
 *
 * So each child has a stand-in for a region's slot: a locked file that only its memory holds
 * open. The file is mapped below everything else, so the kernel unmaps it last. A child's own
 * children have the mapping too, until they call departure_leave(). A program that the child
 * executes does not have it.
 */
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEPARTURE_ADDR        ((void *)0x10000)
#define DEPARTURE_PATIENCE_MS 10000

/* Call it before the fork. Returns a descriptor for parent and child, or -1: then nothing is
 * waited for. */
static inline int departure_prepare(void)
{
	int fd = memfd_create("departure", MFD_CLOEXEC);

	if (fd >= 0 && ftruncate(fd, 1) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static void *departure_mapping; /* set in the child only */

/* Call it in the child. The child does not count as gone while a child of its own has the
 * mapping. */
static inline void departure_begin(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	char path[48];
	void *addr;
	int own;

	if (fd < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, O_RDWR | O_CLOEXEC); /* a new open file, to which the lock belongs */
	close(fd);
	if (own < 0)
		return;
	addr = mmap(DEPARTURE_ADDR, 1, PROT_READ, MAP_SHARED, own, 0);
	if (addr != MAP_FAILED && fcntl(own, F_OFD_SETLK, &lock) == 0)
		departure_mapping = addr;
	close(own);
}

/* Call it in a child's child that is to outlive the child. */
static inline void departure_leave(void)
{
	if (departure_mapping)
		munmap(departure_mapping, 1);
	departure_mapping = NULL;
}

/* Whether the child and its mapping are gone. */
static inline int departure_is_over(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};

	return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK;
}

/* Call it in the parent after it has learned of the death. It waits up to
 * DEPARTURE_PATIENCE_MS. */
static inline void departure_wait(int fd)
{
	const struct timespec pause = {.tv_nsec = 100000};

	if (fd < 0)
		return;
	for (unsigned i = 0; i < DEPARTURE_PATIENCE_MS * 10 && !departure_is_over(fd); i++)
		nanosleep(&pause, NULL);
	close(fd);
}
