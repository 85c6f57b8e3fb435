/*
 * The file of a GPU's turns (include/vgpu_turns.h), as one process has it open, and the process's
 * seat in it.
 *
 * Slices of several users share the file, so any of them may write it and it may belong to any of
 * them. Nothing in it is believed: turn.h says what a hostile user of the file can do at most.
 *
 * A process takes a seat in its slice's entry. It has the seat's byte locked from then on, and the
 * kernel unlocks the byte at the process's death at the latest. So other processes see at once that
 * it is dead, in every pid namespace.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shared_file.h"
#include "vgpu_turns.h"

struct turn_file {
	struct shared_file shared;
	struct vgpu_turns_file *file; /* its mapping; NULL: not open */
	unsigned slice, seat;         /* the process's, after turn_file_join */
	uint32_t owner;               /* of the seat; 0: the process has none */
};

/* As shared_file_open; all users may read and write a new file. */
int turn_file_open(const char *path, struct turn_file *ret_file, struct fault *fault);

/* As shared_file_take: of a file that vgpud has handed over (turn_offer.h). */
int turn_file_take(int fd, struct turn_file *ret_file, struct fault *fault);

/*
 * Takes a seat in the entry of the slice with that key (not 0). ret_first: no other process of the
 * slice lives, so the caller fills in the entry. Returns -ENOSPC with a fault where living slices
 * or processes have all entries or seats. Returns -ESTALE where the file was deleted or replaced
 * since it was opened, or another negative errno. Waits for other processes for 0.1 s at most.
 */
int turn_file_join(struct turn_file *file, uint64_t key, bool *ret_first, struct fault *fault);

/* Gives the seat up. */
void turn_file_leave(struct turn_file *file);

/* Whether a process of that slice lives, or the process of that seat of the slice; true if that is
 * not known. One system call, about 1 us, more with thousands of seats taken. */
bool turn_file_slice_lives(const struct turn_file *file, unsigned slice);
bool turn_file_seat_lives(const struct turn_file *file, unsigned slice, unsigned seat);

/* Frees a seat whose process is dead: any process may do so. */
void turn_file_clear_seat(struct turn_file *file, unsigned slice, unsigned seat);

/*
 * Whether the file is consistent. The header is whole, and the turn word names a slice or none. No
 * two living slices have one key, and the seat of each living process is in its slice's bits. True
 * whenever no process is in turn_file_join or turn_file_leave, however many have died, unless
 * something else wrote to the file. For tests and fuzzers; one system call for each seat in use.
 */
bool turn_file_is_valid(const struct turn_file *file);

/* As shared_file_watch. */
int turn_file_watch(struct turn_file *file);

/* Closes it. In a forked child: touches nothing of the parent's. */
void turn_file_forget(struct turn_file *file);
