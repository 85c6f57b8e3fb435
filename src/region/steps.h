/*
 * The steps of every change of a region. A step is a moment between two stores, or between a store
 * and a system call, at which a kill leaves a change half done. In builds with VGPU_FAULTS, each
 * step calls region_step_hook, so a test can kill the process there. In other builds region_step()
 * is empty.
 *
 * The crash tests go through this list, and fail for a step that they never reach. A moment that
 * the list lacks is tested, too, by a kill before each store (tests/crash/watched.h).
 */
#pragma once

#define REGION_STEPS(X)                               \
	/* a file, and its first byte */              \
	X(file_created)                               \
	X(file_opened)                                \
	X(init_locked)                                \
	X(init_unlocked)                              \
	/* a new region */                            \
	X(make_emptied)                               \
	X(make_half)                                  \
	X(make_sized)                                 \
	X(make_marked)                                \
	X(make_filled)                                \
	X(make_own_magic)                             \
	X(make_done)                                  \
	/* a reset with a new setup */                \
	X(reset_hidden)                               \
	X(reset_shares_freed)                         \
	X(reset_shares_uncounted)                     \
	X(reset_shares)                               \
	X(reset_slots)                                \
	X(reset_written)                              \
	X(reset_done)                                 \
	/* a device more */                           \
	X(append_written)                             \
	X(append_done)                                \
	/* a slot, taken and given back */            \
	X(byte_locked)                                \
	X(claim_byte)                                 \
	X(claim_filled)                               \
	X(claim_published)                            \
	X(release_cleared)                            \
	X(release_done)                               \
	/* a slot, emptied by a process that exits */ \
	X(exit_copied)                                \
	X(exit_published)                             \
	X(exit_hidden)                                \
	X(exit_half)                                  \
	X(exit_done)                                  \
	X(exit_raised_used)                           \
	X(exit_raised)                                \
	X(exit_lowered)                               \
	X(exit_lowered_used)                          \
	/* an onlooker's identity */                  \
	X(borrow_byte)                                \
	X(borrow_over)                                \
	/* the lock */                                \
	X(lock_taken)                                 \
	X(lock_marked)                                \
	X(lock_waited)                                \
	X(lock_found_dead)                            \
	X(lock_taken_over)                            \
	X(lock_releasing)                             \
	X(lock_released)                              \
	/* the slots of the dead, and the totals */   \
	X(clear_hidden)                               \
	X(clear_half)                                 \
	X(clear_done)                                 \
	X(totals_slot)                                \
	X(totals_device)                              \
	/* a class of our slot, up and down */        \
	X(raise_used)                                 \
	X(raise_total)                                \
	X(raise_class)                                \
	X(lower_class)                                \
	X(lower_total)                                \
	X(lower_used)                                 \
	/* an entry of the shares */                  \
	X(share_counted)                              \
	X(share_filled)                               \
	X(share_published)                            \
	X(share_opened_again)                         \
	X(share_closed_once)                          \
	X(share_kept)                                 \
	X(share_freed)                                \
	/* a charge that moves to another slot */     \
	X(move_written)                               \
	X(move_begun)                                 \
	X(move_raised_total)                          \
	X(move_raised)                                \
	X(move_lowered)                               \
	X(move_lowered_total)                         \
	X(move_named)                                 \
	X(move_marked)                                \
	X(move_done)                                  \
	/* the shares of a slot that is over */       \
	X(share_imports_cleared)                      \
	X(share_all_cleared)

#ifdef VGPU_FAULTS

#include <stdbool.h>

#define REGION_STEP_ENUM(name) REGION_STEP_##name,
enum region_step { REGION_STEPS(REGION_STEP_ENUM) REGION_STEP_COUNT };
#undef REGION_STEP_ENUM

/* Called at each step, unless it is NULL. Tests set it before they start a second thread. */
extern void (*region_step_hook)(enum region_step step);

/* A test that damages a region sets this: then the assertions about the region when a holder
 * releases the lock do not apply. */
extern bool region_is_damaged;

#define region_step(name)                                     \
	do {                                                  \
		if (region_step_hook)                         \
			region_step_hook(REGION_STEP_##name); \
	} while (0)

#else
#define region_is_damaged false
#define region_step(name) ((void)0)
#endif
