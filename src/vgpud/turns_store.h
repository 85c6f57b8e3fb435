/*
 * The files of turns (include/vgpu_turns.h) that vgpud owns, one for each GPU. A file is a
 * memfd with all of its pages, sealed so that no program can change its size. systemd keeps the
 * files while vgpud starts again (sd_pid_notify_with_fds(3)). Without systemd, the next vgpud
 * makes new files, and the programs move to them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"
#include "vgpu_region.h"
#include "vgpu_turns.h"

#define TURNS_FILES_MAX 128
#define TURNS_KEPT_NAME "turns-" /* systemd keeps a file under this text and the GPU's UUID */

struct turns_file {
	char uuid[VGPU_UUID_LEN];
	uint64_t maker; /* the tenant that had it made; 0: none, as the GPU is one of the node */
	uint64_t device, inode;
	int fd; /* vgpud's own open file, which no client shares */
	struct vgpu_turns_file *at;
	unsigned moves;       /* how often the GPU's file was replaced */
	uint64_t moved_ns;    /* when it was last replaced */
	uint64_t corrections; /* of weights in the GPU's files (turns_check.h) */
	uint8_t unknown_looks[VGPU_TURNS_SLICES]; /* looks without a slice */
	unsigned unchecked;  /* entries whose weights the last look could not check */
	bool unchecked_said; /* a log line has named a region, and some weight is still unchecked */
};

struct turns_store {
	unsigned count;
	struct turns_file file[TURNS_FILES_MAX];
};

/* Has systemd keep the descriptor under that name for the next vgpud, in place of any
 * descriptor of that name. Without systemd, nothing happens. The name must have no colon, which
 * systemd would replace. */
void turns_store_keep(const char *name, int fd);

/* Takes a GPU's file that systemd has kept. Returns false if it is no file of turns of this
 * version, or if the store is full or has a file of the GPU. Then the descriptor stays the
 * caller's. */
bool turns_store_take(struct turns_store *store, const char *uuid, int fd);

/* Returns the GPU's file, which is made if it is missing; or NULL with a fault. */
struct turns_file *turns_store_get(struct turns_store *store, const char *uuid, uint64_t maker,
				   struct fault *fault);
/* The number of files that a tenant has had made. */
unsigned turns_store_made_by(const struct turns_store *store, uint64_t maker);
/* The GPU's file, or NULL. */
struct turns_file *turns_store_find(struct turns_store *store, const char *uuid);

/* Opens the file again, as a new open file that can be sent to a client. Clients may have
 * changed the file's owner and mode; where that keeps vgpud out, the file is replaced. Returns
 * a descriptor, which the caller closes, or a negative errno. */
int turns_store_open(struct turns_file *file);

/* Replaces the file by a new one. The programs that get the new file move to it; the others
 * stay with the old one. Returns 0; or a negative errno, and the file stays. */
int turns_store_replace(struct turns_file *file);

/* Closes all files. A program that has one keeps it. */
void turns_store_close(struct turns_store *store);
