/*
 * A small file that processes share by mapping it: how it is made, opened, recognised and watched.
 *
 * A missing file is created exclusively. Each opener has the first byte of the file locked for some
 * microseconds (shared_file_lock), and makes a file that is empty or zeros. It writes zeros first,
 * so that the file has its blocks, then the header, and the magic last. So no process sees a file
 * that is not whole. If a process is killed while it makes the file, the next opener makes it.
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

/* The first bytes of each such file. */
struct shared_file_header {
	uint64_t magic;
	uint32_t version;
	uint32_t size; /* of the whole file, bytes */
	uint32_t made; /* tells this making of the file from any other of it; not 0 */
};

/* An error in words: its cause and its cure. */
struct shared_file_reason {
	int error; /* negative errno; 0 ends a list */
	const char *cause, *cure;
};

/* The properties that files of one kind have in common. The struct lives as long as any of the
 * files is open. */
struct shared_file_kind {
	uint64_t magic;
	uint32_t version;
	size_t size_bytes;
	unsigned mode;       /* of a new file, whatever the umask is */
	const char *cannot;  /* "cannot join the gang", before the path */
	const char *not_one; /* "is no gang of vgpu", after the path */
	const struct shared_file_reason
		*reasons; /* of this kind; searched before the general ones */
	/* Refuses a file for its owner or mode: a negative errno with a fault. NULL: none is. */
	int (*check)(const char *path, const struct stat *st, struct fault *fault);
};

struct shared_file {
	const struct shared_file_kind *kind;
	void *at;               /* the mapping; NULL: not open */
	int fd;                 /* atomic; -1: not open */
	uint64_t device, inode; /* of the file that was opened */
	bool is_sealed;         /* it was handed over (shared_file_take), and cannot be lost */
	char path[SHARED_FILE_PATH_LEN];
};

/*
 * Opens the file, and creates it if it is missing. Its directory must exist. Refuses a symbolic
 * link, a file with a second name (a hard link), a file of another kind, and what kind->check
 * refuses. 0, or a negative errno with a fault; then ret_file->at is NULL. Waits for other
 * processes for 0.1 s at most.
 */
int shared_file_open(const char *path, const struct shared_file_kind *kind,
		     struct shared_file *ret_file, struct fault *fault);

/*
 * Opens a file that another process has made and handed over. It is a memfd of the kind's size that
 * is sealed, so that no process can truncate it. The contents are not checked. `name` stands for
 * the path in messages. The function owns the descriptor from then on, also if it fails. The
 * descriptor must be of an open file that no other process has, as locks belong to the open file.
 * Results as shared_file_open.
 */
int shared_file_take(int fd, const char *name, const struct shared_file_kind *kind,
		     struct shared_file *ret_file, struct fault *fault);
#define SHARED_FILE_SEALS 0x0007 /* F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW (fcntl(2)) */

/* Opens a file that exists. Returns a descriptor or a negative errno. */
int shared_file_open_existing(const char *path);

/* The lock between processes that enter or leave the file. 0, or a negative errno: -ETIMEDOUT after
 * 0.1 s. */
int shared_file_lock(const struct shared_file *file);
void shared_file_unlock(const struct shared_file *file);

/* The descriptor, or -EBADF if it is of another file by now: programs close descriptors that they
 * did not open. */
int shared_file_fd(const struct shared_file *file);

/* 0 if the path still has the file that was opened, or the file is sealed. -ESTALE if the file was
 * deleted or replaced, so that processes that open the path have another file. -EUCLEAN if the file
 * was truncated or written over. The mapping may be touched after any result. About 2 us. */
int shared_file_watch(struct shared_file *file);

/* Writes the cause and the cure of the error to the fault. Returns the error. */
int shared_file_fail(const struct shared_file *file, int error, struct fault *fault);

/* Writes to the fault that the file at the path is not of the kind: `what` says why. Returns
 * -EINVAL. */
int shared_file_refuse(const struct shared_file_kind *kind, const char *path, const char *what,
		       struct fault *fault);

/* Closes the file. In a forked child, the parent's mapping and locks stay as they are. */
void shared_file_forget(struct shared_file *file);
