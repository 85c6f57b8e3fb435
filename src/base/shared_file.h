/*
 * A small file that processes share by mapping it: how it is made, opened, recognised and watched.
 *
 * A missing file is created exclusively. Each opener has the first byte of the file locked for some
 * microseconds (shared_file_lock), and makes a file that is empty or zeros: zeros first, so that
 * the file has its blocks, then the header, and the magic last. So no process sees a file that is
 * not whole. If a process is killed while it makes the file, the next opener makes it.
 *
 * A file is of a kind if and only if it has its full size and the magic.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fault.h"

#define SHARED_FILE_PATH_LEN 4096

/* How each such file begins. */
struct shared_file_header {
	uint64_t magic;
	uint32_t version;
	uint32_t size; /* of the whole file, bytes */
	uint32_t made; /* tells this making of the file from any other of it; not 0 */
};

/* A cause in words, and its cure. */
struct shared_file_reason {
	int error; /* negative errno; 0 ends a list */
	const char *cause, *cure;
};

/* Lives as long as the files of the kind. */
struct shared_file_kind {
	uint64_t magic;
	uint32_t version;
	size_t size_bytes;
	unsigned mode;                            /* of a new file, whatever the umask is */
	const char *cannot;                       /* "cannot join the gang", before the path */
	const char *not_one;                      /* "is no gang of vgpu", behind the path */
	const struct shared_file_reason *reasons; /* the kind's own; they go first */
	/* Refuses a file for its owner or mode: a negative errno with a fault. NULL: none is. */
	int (*check)(const char *path, const struct stat *st, struct fault *fault);
};

struct shared_file {
	const struct shared_file_kind *kind;
	void *at;               /* the mapping; NULL: not open */
	int fd;                 /* atomic; -1: not open */
	uint64_t device, inode; /* what the kernel knows the file by */
	bool is_sealed;         /* it was handed over (shared_file_take), and cannot be lost */
	char path[SHARED_FILE_PATH_LEN];
};

/*
 * Opens the file, which is made if it is missing. Its directory must be there. Refused: a symbolic
 * link, a file with another name besides, one that holds something else, and what kind->check
 * refuses. 0, or a negative errno with a fault; ret_file->at is NULL then. Waits for other
 * processes for 0.1 s at most.
 */
int shared_file_open(const char *path, const struct shared_file_kind *kind,
		     struct shared_file *ret_file, struct fault *fault);

/*
 * The same of a file that another process has made and handed over, under that name for messages:
 * a memfd of the kind's size that is sealed, so that nobody can truncate it. What it holds is not
 * looked at. Takes the descriptor, also where it fails. The descriptor has to be an open file of
 * this process alone, as locks belong to the open file.
 */
int shared_file_take(int fd, const char *name, const struct shared_file_kind *kind,
		     struct shared_file *ret_file, struct fault *fault);
#define SHARED_FILE_SEALS 0x0007 /* F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW (fcntl(2)) */

/* Opens what is there, and makes nothing: a descriptor, or a negative errno. */
int shared_file_open_existing(const char *path);

/* Between processes that change who is in the file: 0, or a negative errno, -ETIMEDOUT after 0.1 s.
 */
int shared_file_lock(const struct shared_file *file);
void shared_file_unlock(const struct shared_file *file);

/* The descriptor, if it still is of the file, else -EBADF: programs close descriptors that are not
 * theirs. */
int shared_file_fd(const struct shared_file *file);

/* 0 if the file still is the one that was opened, or is sealed; -ESTALE: it was deleted or
 * replaced, and processes that open it now have another; -EUCLEAN: it was truncated or written
 * over. The mapping may be touched in any case. Some 2 us. */
int shared_file_watch(struct shared_file *file);

/* Puts the error into words, and returns it. */
int shared_file_fail(const struct shared_file *file, int error, struct fault *fault);

/* Says what the file at the path is not, and returns -EINVAL. */
int shared_file_refuse(const struct shared_file_kind *kind, const char *path, const char *what,
		       struct fault *fault);

/* Closes it. In a forked child: touches nothing of the parent's. */
void shared_file_forget(struct shared_file *file);
