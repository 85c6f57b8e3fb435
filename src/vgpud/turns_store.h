/*
 * The files of turns (include/vgpu_turns.h) that vgpud owns, one a GPU: memfds, sealed so that
 * nobody can change their size, with all of their pages. systemd keeps them while vgpud starts
 * again (sd_pid_notify_with_fds(3)). Without systemd, vgpud makes new ones, and the programs move
 * to them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"
#include "vgpu_region.h"
#include "vgpu_turns.h"

#define TURNS_FILES_MAX 128
#define TURNS_KEPT_NAME "turns-" /* before a GPU's UUID: what systemd knows its file by */

struct turns_file {
	char uuid[VGPU_UUID_LEN];
	uint64_t maker; /* which tenant had it made; 0: none, as it is a GPU of the node */
	uint64_t device, inode;
	int fd; /* vgpud's own; no client has this open file */
	struct vgpu_turns_file *at;
	unsigned moves;                           /* how often another file has taken its place, */
	uint64_t moved_ns;                        /* and when it last did */
	uint64_t corrections;                     /* of weights in it (turns_check.h) */
	uint8_t unknown_looks[VGPU_TURNS_SLICES]; /* for how many looks an entry was of no slice */
	unsigned unchecked;  /* entries whose weights vgpud does not know, at the last look */
	bool unchecked_said; /* a log line has named the region, and it lasts */
};

struct turns_store {
	unsigned count;
	struct turns_file file[TURNS_FILES_MAX];
};

/* systemd keeps the descriptor under that name for the next vgpud, and no other descriptor of that
 * name. Without systemd, nothing happens. The name has no colon: systemd would replace it. */
void turns_store_keep(const char *name, int fd);

/* Takes the GPU's file, which systemd has kept. False: it is no file of turns of this version, or
 * the store has the GPU's already, and the descriptor stays the caller's. */
bool turns_store_take(struct turns_store *store, const char *uuid, int fd);

/* The GPU's file, which is made if it is missing: NULL with a fault. */
struct turns_file *turns_store_get(struct turns_store *store, const char *uuid, uint64_t maker,
				   struct fault *fault);
/* How many files a tenant has had made. */
unsigned turns_store_made_by(const struct turns_store *store, uint64_t maker);
struct turns_file *turns_store_find(struct turns_store *store, const char *uuid);

/* A descriptor of the file that is an open file of its own, or a negative errno. Clients may have
 * changed the file's owner and mode; where that keeps vgpud out, the file is replaced by another.
 */
int turns_store_open(struct turns_file *file);

/* Another file takes its place: the programs move to it, and those that are not given it stay with
 * the one that they have. 0, or a negative errno, and the file stays. */
int turns_store_replace(struct turns_file *file);

void turns_store_close(struct turns_store *store);
