/*
 * A gang of several slices, as a process of one of them has it open: the file in which its members
 * are (struct vgpu_gang_file, include/vgpu_region.h).
 *
 * A process that joins takes an entry for each of its devices. It has the entry's byte locked from
 * then on, and the kernel unlocks the byte at the process's death at the latest: so a dead member
 * is known at once, in every pid namespace.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shared_file.h"
#include "vgpu_region.h"

struct gang_file {
	struct shared_file shared;
	struct vgpu_gang_file *file;           /* its mapping; NULL: not open */
	uint32_t owner[VGPU_GANG_MEMBERS_MAX]; /* of the entries that this process has, or 0; atomic
						*/
};

/* As shared_file_open. Refused, too: a file that is neither this user's nor root's, and one that
 * others may write. */
int gang_file_open(const char *path, struct gang_file *ret_file, struct fault *fault);

/* Takes an entry: its index; *ret_owner is what its `owner` is to be. -ENOSPC with a fault where
 * living processes have them all; -ESTALE, where the file was deleted or replaced since it was
 * opened; or another negative errno. The caller serialises, as of the next. */
int gang_file_claim(struct gang_file *file, uint32_t *ret_owner, struct fault *fault);
/* Gives it up, after its `owner` is 0 again. */
void gang_file_release(struct gang_file *file, unsigned entry);

/* Whether the process that is the owner of an entry lives; true where that cannot be told. */
bool gang_file_lives(const struct gang_file *file, uint32_t owner);

/* As shared_file_watch. */
int gang_file_watch(struct gang_file *file);

/* A number that tells this file from others; never 0. */
uint64_t gang_file_number(const struct gang_file *file);

/* Removes the file if it is a gang's, this user's, and no process is in it. */
void gang_file_sweep(const char *path);

/* Closes it. In a forked child: touches nothing of the parent's. */
void gang_file_forget(struct gang_file *file);
