/* The comparison of the process's accounts with NVML's figure, which the caller reads. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * Whether this process's accounts of the device are due to be compared with NVML's figure. They are
 * due when a new context's cost is not known yet, after quota_reconcile_soon, and after 20 ms, or 2
 * ms where the slice is nearly full. The times are longer where comparisons take long
 * (quota_reconcile_took). True for one caller, who then takes a ticket, reads NVML and calls
 * quota_reconcile. After quota_expect_code, a comparison is due for every caller until one has been
 * made whose ticket was taken later.
 */
bool quota_reconcile_due(int device);
/* The same after a wait for work of the device. No allocation follows that depends on the
 * comparison. So a slice that is nearly full is compared no more often than others. */
bool quota_reconcile_due_at_wait(int device);

/* The last comparison took so many ns, from the reading of the accounts to their correction. */
void quota_reconcile_took(uint64_t ns);

/* Whether NVML has given a plausible figure for this process on the device. Then a comparison finds
 * the memory that the driver takes. */
bool quota_is_compared(int device);
void quota_reconcile_soon(int device);

/* The driver may have loaded code on some device since the last comparison. So the accounts have
 * the code before a program that fills its slice within 20 ms takes the last bytes. */
void quota_expect_code(void);

/* The figures of the accounts at one moment. A ticket is taken before NVML is read, by one thread
 * at a time. */
struct quota_ticket {
	uint64_t code_expected; /* how often quota_expect_code was called */
	uint64_t stamp;
	uint64_t data_bytes;
	uint64_t sum_bytes; /* of all classes that NVML may count */
	uint64_t managed_bytes, managed_returns;
	uint64_t tentatives, tried_bytes, tries_bytes; /* of memory taken without a charge */
	uint64_t frees_in_part;                        /* account_frees_in_part() */
	bool watched; /* the ledger notes the most that it says from then on */
};
struct quota_ticket quota_reconcile_ticket(int device);
#define QUOTA_NO_STAMP UINT64_MAX /* for figures that are of different moments */

/* Whether nothing of the process is under way just now. */
bool quota_is_at_rest(void);

/* Whether a comparison needs the process to rest for a moment, because none occurs by chance.
 * Several comparisons in a row were made while the accounts changed, and the accounts were above
 * NVML's figure each time. True at most once a second; for the thread that compares. */
bool quota_wants_rest(int device);

/*
 * Whether NVML's figure most likely belongs to another process, although NVML lists it under this
 * process's pid. Either several figures in a row were less than the contexts take, or this figure
 * is more than a context above the peak of the accounts since the ticket. The comparing thread
 * calls this.
 */
bool quota_doubts(int device, const struct quota_ticket *ticket, uint64_t nvml_bytes);
/* The process was found in NVML's list: quota_doubts is false from now on. */
void quota_found(void);

/* By how much the accounts are above NVML's figure; 0 if something has changed since the ticket. */
uint64_t quota_excess(int device, const struct quota_ticket *ticket, uint64_t nvml_bytes);

/* The bytes that are charged here and may be in another process's figure: of memory that processes
 * of the slice share. */
uint64_t quota_moved_here(int device);

/*
 * NVML counts *nvml_bytes for this process (NULL: it cannot say; the accounts stay as they are).
 * The memory that the driver holds on its own account (modules, local memory, memory that no hook
 * has seen) is charged as module memory. The charge of a context that was too high is lowered. If
 * any allocation or free was under way since the ticket, the two figures are of different moments.
 * Then the accounts are raised by the bytes that NVML counts above their highest sum since the
 * ticket. A comparison is due again soon, and the answer is false.
 */
bool quota_reconcile(int device, const struct quota_ticket *ticket, const uint64_t *nvml_bytes);

/* The driver will later take `bytes` of what quota_driver_reserve reserved, in one piece. Called
 * before quota_driver_settle, which keeps them charged. They stay charged in addition to NVML's
 * figure until that figure rises by as much at once. */
void quota_driver_expect(int device, uint64_t bytes);
/* The driver will not take them after all. Returns how many of them it has not taken yet, which the
 * caller refunds. */
uint64_t quota_driver_expect_less(int device, uint64_t bytes);

/* Whether so little room is left that code which the driver has loaded meanwhile may fill it. False
 * without a limit. */
bool quota_is_narrow(int device);

/* -- inside quota/ -- */

struct vgpu_hami_usage; /* vgpu_region.h */

/* A context was made whose cost is a guess: the comparison with NVML is due. */
void compare_new_context(int device);
/* The charge of the device's contexts is no guess any more: it was corrected, or no context is
 * left. */
void compare_guess_over(int device, bool none_left);

/* The device's last context ended: nothing is taken later (quota_driver_expect). */
void compare_expect_nothing(int device);

/* The charged data that NVML counts, too. */
uint64_t compare_data(int device, const struct vgpu_hami_usage *usage);

void compare_forked(void); /* in a forked child */
