/*
 * The memory quota, as seen from one process of the slice. This component computes the cost of an
 * allocation, whether there is room for it, and the bytes that a free returns. It keeps the
 * accounts, and src/preload/ calls the driver. In the following order, no number of processes and
 * threads together can pass the limit:
 *
 *     quota_reserve   the worst that the allocation can cost is charged to the slice, or refused
 *     (the driver)    no lock is held
 *     quota_settle    the bytes that it really took stay charged, the rest goes back; or
 *                     quota_cancel
 *
 *     quota_free_begin   the block leaves the accounts, its charge stays
 *     (the driver)
 *     quota_free_commit  the charge goes back; or quota_free_undo, if the driver refused
 *
 * pool.h has the same for memory that the driver keeps in pools, holding.h for memory that has a
 * handle. export.h and import.h are about memory that processes share.
 *
 * Devices are CUDA ordinals of this process; the slice knows them by UUID. Between quota_attach and
 * quota_forked everything is thread-safe. A thread takes a lock of this component before one of the
 * region. No thread holds two locks of tables of this component, except that the lock of moved.c or
 * export.c may be held while the lock of account.c is taken.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "blocks.h"
#include "fault.h"
#include "slice.h"
#include "trace.h"

/* A GPU as this process sees it. */
struct quota_gpu {
	char uuid[VGPU_UUID_LEN];
	int nvml_index; /* -1: not known */
};

/*
 * Opens the slice's region, takes a slot in it, and finds gpus[0 … count) (by CUDA ordinal) in it.
 * 0, or a negative errno with a fault; then nothing is attached, and the slice must be refused.
 */
int quota_attach(const struct slice *slice, const struct quota_gpu *gpus, unsigned count,
		 struct fault *fault);

/* In a forked child: nothing of the parent's is held or known any more, and nothing of it touched.
 */
void quota_forked(void);

bool quota_attached(void);

/* The region, with the process's slot, while quota_attached(): for src/pace, which uses it, too. */
struct region *quota_region(void);

/* The GPU of a process that sees just one; else -1. */
int quota_only_device(void);

/* The compute limits that the policy and the environment give a GPU, percent, 0 for none. */
struct quota_cores {
	unsigned policy_pct, policy_most_pct; /* the latter as in struct policy_device */
	unsigned env_pct;
};

/* The GPU's index in the region; -1: the GPU is not in the slice, and ret_cores is untouched. */
int quota_cores(int device, struct quota_cores *ret_cores);

/* Whether the GPU is in the slice at all. Contexts on others are refused. */
bool quota_has_device(int device);

uint64_t quota_limit(int device); /* bytes, 0: none; as of now */
/* The policy's limit of the GPU has changed. A region's limit of before_bytes becomes now_bytes. */
void quota_follow_policy(int device, uint64_t before_bytes, uint64_t now_bytes);
/* Likewise the credit that the GPU's bucket holds. */
void quota_follow_burst(int device, uint64_t before_ns, uint64_t now_ns);
uint64_t quota_used(int device); /* bytes that the slice is charged, also for dying processes */
/* Whether the slice holds more than its limit of the device. False without a limit. */
bool quota_is_above_limit(int device);
/* Whether so little room is left that code which the driver has loaded meanwhile may fill it. False
 * without a limit. */
bool quota_is_narrow(int device);
/* Counts an allocation that was refused for want of room. */
void quota_note_refusal(int device);
/* Both are called only if trace_wants(TRACE_MEMORY). quota_trace_refused: a call that wanted so
 * many bytes is refused. quota_trace_room: room of so many bytes was made, which took took_ns. */
void quota_trace_refused(int device, uint64_t bytes, enum trace_reason reason);
void quota_trace_room(int device, uint64_t room_bytes, uint64_t took_ns);
void quota_begin_exit(void); /* region_begin_exit; nothing where we are not attached */
void quota_reap(void);       /* clears the slots that are over; 1 to 2 us for each slot */
/* Waits, a second at most, for the device to have back what killed processes of the slice held. */
void quota_wait_dying(int device);
/* Waits, 2 s at most, for other processes of the slice to find what their first contexts cost. */
void quota_wait_guesses(int device);
/* Reports why the region is lost, after an error -ESTALE or -EUCLEAN of a function below. */
void quota_why_lost(struct fault *fault);

/* -- allocations -- */

/* The reservation for an allocation that is being made. */
struct quota_reservation {
	int device;
	bool managed;
	bool tentative; /* nothing is reserved: it may fit into granules already taken. See below */
	uint64_t bytes;
};

/*
 * Reserves room for an allocation of size_bytes. 0, -EDQUOT (there is none), -ETIMEDOUT (the
 * region's lock cannot be had), or -ESTALE or -EUCLEAN (the region was taken away). When the quota
 * is full, a small allocation may still fit into a granule that is held already, and only the
 * driver knows. Then the reservation is tentative, one at a time in a process, and settling it
 * finds out. So for that moment the device may hold more than the quota, by one granule for each
 * process.
 */
int quota_reserve(int device, bool managed, uint64_t size_bytes,
		  struct quota_reservation *ret_reservation);

/* The driver refused: all of the reservation goes back. */
void quota_cancel(const struct quota_reservation *reservation);

/* The driver gave the block. 0, or -EDQUOT: the block took more than was reserved, and there is no
 * room for it. Then the block is not in the accounts, the reservation stands, and the caller frees
 * the block and cancels. */
int quota_settle(const struct quota_reservation *reservation, const struct block *block);

/* A block as another process can import it. */
struct quota_block {
	int device;
	uint64_t context; /* its end frees the block, whatever context is current */
	uint64_t bytes; /* of the granules that it lies in, also of those that other blocks share */
	bool leaving;   /* the block is not known, because it is being freed */
};

/* The block that begins at the address. False: it is not known, or is managed memory. Then only
 * ret_block->leaving is filled in. From quota_free_begin on, a block is leaving until the driver
 * has freed it, or quota_free_undo has put it back. After quota_free_orphan it is leaving until its
 * context ends, or until another block begins at the address. */
bool quota_find_block(uint64_t address, struct quota_block *ret_block);

struct quota_release {
	struct block block;
	uint64_t bytes;   /* to give back, less what exports of the block keep charged */
	uint64_t exports; /* exports_leave's number */
	bool in_part; /* a granule of it is other allocations', too, and stays charged for them */
};

/* False: no settled block begins at the address. The caller passes the address to the driver. */
bool quota_free_begin(uint64_t address, struct quota_release *ret_release);
void quota_free_commit(const struct quota_release *release);
void quota_free_undo(const struct quota_release *release);

/* quota_free_postpone: the driver will free the block later, and the charge stays.
 * quota_free_resume comes before the later quota_free_commit or quota_free_undo. If no call will
 * report the free, quota_free_orphan counts it as module memory until the next comparison with
 * NVML. */
void quota_free_postpone(void);
void quota_free_resume(void);
void quota_free_orphan(const struct quota_release *release);

/* -- managed memory that is moved -- */

/* The charge for a move. */
struct quota_move {
	int device;
	bool charged; /* there is something to undo */
	uint64_t base;
	uint64_t first, bytes; /* the range on the device before: its first granule, and how much */
	uint32_t serial, before; /* of the move; of the one before it */
};

/*
 * A range of the managed allocation that begins at base is to be moved to the device. The range is
 * charged there as well, until the allocation is freed. 0, -EDQUOT, -ETIMEDOUT. Memory that is not
 * managed, or that was allocated on the device itself, costs nothing.
 */
int quota_move(int device, uint64_t base, uint64_t address, uint64_t bytes,
	       struct quota_move *ret_move);

/* The driver refused. */
void quota_move_undo(const struct quota_move *move);

/* -- contexts -- */

/* The reservation for a context that is being made. */
struct quota_context_reservation {
	int device;
	bool known;            /* the cost is one that was measured before, in this slice */
	uint64_t bytes;        /* reserved for the bytes that NVML will count for it */
	uint64_t hidden_bytes; /* and for memory that no process's figure shows */
	uint64_t least_bytes;
};

/*
 * Reserves room for a context: the cost that the slice has learned for this device. While the cost
 * is not known, it reserves as much as there is up to CONTEXT_BYTES_MOST, but at least least_bytes.
 * -EDQUOT, -ETIMEDOUT as above.
 */
int quota_context_reserve(int device, uint64_t least_bytes,
			  struct quota_context_reservation *ret_reservation);
void quota_context_cancel(const struct quota_context_reservation *reservation);

/* Whether a context of the device has been measured in this slice. */
bool quota_context_cost_known(int device);

/* Whether the process has a settled context on the device that has not ended. */
bool quota_has_context(int device);

/* Whether the context has been settled and has not ended. */
bool quota_knows_context(uint64_t context);

/*
 * The context is there and takes at most at_most_bytes (UINT64_MAX: cannot say). The next
 * quota_reconcile finds its exact cost. measured_bytes is NVML's figure for the process (0: none).
 * The context's cost is computed from that figure, or else is at_most_bytes. -EDQUOT if the cost is
 * above the reservation and there is no room for the rest. Then the reservation stands, and the
 * caller destroys the context and cancels.
 */
int quota_context_settle(const struct quota_context_reservation *reservation, uint64_t context,
			 uint64_t at_most_bytes, uint64_t measured_bytes);

/* Whether quota_context_settle needs measured_bytes, which take NVML's first call in the process.
 */
bool quota_context_is_tight(const struct quota_context_reservation *reservation,
			    uint64_t at_most_bytes);

/* The context is gone, with all that was allocated or imported in it. Unknown contexts are ignored.
 * Called between quota_ending_begin and quota_ending_end, like the driver's call that ended it. */
void quota_context_end(uint64_t context);

/* The number of contexts that have ended so far, read before a driver call that makes something in
 * a context. quota_context_has_ended: whether that context has ended since. If so, the caller drops
 * what it has recorded for that context meanwhile. False: it has not, or too many contexts have
 * ended to tell. */
uint64_t quota_context_ends(void);
bool quota_context_has_ended(uint64_t context, uint64_t ends_before);

#define CONTEXT_BYTES_MOST ((uint64_t)1 << 30)

/* -- what the driver takes on its own account -- */

/* Reserves as much as there is from least_bytes to most_bytes, as module memory. 0, -EDQUOT,
 * -ETIMEDOUT. */
int quota_driver_reserve(int device, uint64_t least_bytes, uint64_t most_bytes,
			 uint64_t *ret_bytes);

/* The driver took the memory, or did not. At most kept_bytes of the reserved bytes stay charged.
 * The comparison with NVML charges the bytes that the driver took beyond these. */
void quota_driver_settle(int device, uint64_t reserved_bytes, uint64_t kept_bytes);

/* Both charge the bytes that the driver took beyond a reservation, if no comparison will find them.
 * quota_driver_charge charges them within the limit: 0, -EDQUOT, -ETIMEDOUT.
 * quota_driver_charge_anyway charges them whatever the limit, because the driver holds them
 * already. */
int quota_driver_charge(int device, uint64_t bytes);
void quota_driver_charge_anyway(int device, uint64_t bytes);

/* The driver will later take `bytes` of what quota_driver_reserve reserved, in one piece. Called
 * before quota_driver_settle, which keeps them charged. They stay charged in addition to NVML's
 * figure until that figure rises by as much at once. */
void quota_driver_expect(int device, uint64_t bytes);

/* The bytes that are charged for the process's contexts and modules. */
uint64_t quota_driver_bytes(int device);

/* Refunds the bytes of a call that was undone. Called between quota_ending_begin and
 * quota_ending_end, like the driver's call that undid it. */
void quota_driver_return(int device, uint64_t bytes);

/* -- what ends -- */

/* quota_ending_begin is called before a driver call that frees charged memory, quota_ending_end
 * after the accounts have dropped that memory. In between, NVML's figure may lack what the accounts
 * still have, so no comparison lowers the accounts. Calls may be nested, also by several threads.
 * The functions above that begin to free or to release something do this themselves. */
void quota_ending_begin(void);
void quota_ending_end(void);

/* -- reconciling -- */

/*
 * Whether this process's accounts of the device are due to be compared with NVML's figure. They are
 * due when a new context's cost is not known yet, after quota_reconcile_soon, and after 20 ms, or 2
 * ms where the slice is nearly full. The times are longer where NVML answers slowly
 * (quota_reconcile_took). True for one caller, who then takes a ticket, reads NVML and calls
 * quota_reconcile. After quota_expect_code, a comparison is due for every caller until one has been
 * made whose ticket was taken later.
 */
bool quota_reconcile_due(int device);

/* NVML took so many ns for its last answer. */
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

/*
 * NVML counts *nvml_bytes for this process (NULL: it cannot say; the accounts stay as they are).
 * The memory that the driver holds on its own account (modules, local memory, memory that no hook
 * has seen) is charged as module memory. The charge of a context that was too high is lowered. If
 * any allocation or free was under way since the ticket, the two figures are of different moments.
 * Then the accounts are raised by the bytes that NVML counts above their highest sum since the
 * ticket. A comparison is due again soon, and the answer is false.
 */
bool quota_reconcile(int device, const struct quota_ticket *ticket, const uint64_t *nvml_bytes);
