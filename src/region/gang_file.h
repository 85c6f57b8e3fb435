/*
 * A gang of several slices, as a process of one of them has it open: the file in which its members
 * are (struct vgpu_gang_file, include/vgpu_region.h).
 *
 * A process that joins takes an entry for each of its devices. It has the entry's byte locked from
 * then on, and the kernel unlocks the byte at the process's death at the latest. So other processes
 * see at once that a member is dead, in every pid namespace.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shared_file.h"
#include "vgpu_region.h"

struct gang_file {
	struct shared_file shared;
	struct vgpu_gang_file *file; /* its mapping; NULL: not open */
	/* The `owner` of each entry that this process has, or 0; atomic. */
	uint32_t owner[VGPU_GANG_MEMBERS_MAX];
};

/* As shared_file_open. A file is also refused if it is neither this user's nor root's, or if others
 * may write it. */
int gang_file_open(const char *path, struct gang_file *ret_file, struct fault *fault);

/* Takes an entry, and returns its index; *ret_owner is the value for its `owner`. Errors: -ENOSPC
 * with a fault, if living processes have all entries; -ESTALE, if the file was deleted or replaced
 * since it was opened; or another negative errno. Only one thread at a time may claim or release.
 */
int gang_file_claim(struct gang_file *file, uint32_t *ret_owner, struct fault *fault);
/* Gives the entry back, after its `owner` was set to 0. */
void gang_file_release(struct gang_file *file, unsigned entry);

/* Whether the process that owns an entry lives; true if that cannot be found out. */
bool gang_file_lives(const struct gang_file *file, uint32_t owner);

/* As shared_file_watch. */
int gang_file_watch(struct gang_file *file);

/* A number that identifies this file; never 0. */
uint64_t gang_file_number(const struct gang_file *file);

/* Removes the file if it is a gang's and this user's, and no process has an entry in it. */
void gang_file_sweep(const char *path);

/* Closes the file. In a forked child, nothing of the parent's changes. */
void gang_file_forget(struct gang_file *file);
