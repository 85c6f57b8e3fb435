/*
 * When a dead child is gone altogether. Its parent is told of a death when the child's descriptors
 * are closed, but its memory may live on, and what it has mapped with it: whoever reads its
 * /proc/pid/maps at that instant, as this library does where a region is made, keeps both until it
 * has read on, and on a busy machine that may be a while. Until then the child's locks are held,
 * and it seems to live.
 *
 * So each child has something like a region's slot: a locked file that only its memory holds open.
 * It is mapped below all else, and so the kernel lets go of it last. A child's own children have it
 * as well, as they have the child's slot until they forget it; a program that the child becomes has
 * not.
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

/* Before the fork: a descriptor for both; or -1, and nothing is waited for. */
static inline int departure_prepare(void)
{
	int fd = memfd_create("departure", MFD_CLOEXEC);

	if (fd >= 0 && ftruncate(fd, 1) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static void *departure_mapping; /* in the child */

/* In the child, which is not gone as long as a child of its is there. */
static inline void departure_begin(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	char path[48];
	void *addr;
	int own;

	if (fd < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, O_RDWR | O_CLOEXEC); /* another open file, of which the lock is */
	close(fd);
	if (own < 0)
		return;
	addr = mmap(DEPARTURE_ADDR, 1, PROT_READ, MAP_SHARED, own, 0);
	if (addr != MAP_FAILED && fcntl(own, F_OFD_SETLK, &lock) == 0)
		departure_mapping = addr;
	close(own);
}

/* In a child's child that is to outlive it. */
static inline void departure_leave(void)
{
	if (departure_mapping)
		munmap(departure_mapping, 1);
	departure_mapping = NULL;
}

static inline int departure_is_over(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};

	return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK;
}

/* In the parent, when it knows of the death. */
static inline void departure_wait(int fd)
{
	const struct timespec pause = {.tv_nsec = 100000};

	if (fd < 0)
		return;
	for (unsigned i = 0; i < DEPARTURE_PATIENCE_MS * 10 && !departure_is_over(fd); i++)
		nanosleep(&pause, NULL);
	close(fd);
}
