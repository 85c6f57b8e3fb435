/* Contexts against the slice, and other memory that the driver takes on its own account. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

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
 * Returns 0, -EDQUOT (there is no room), or -ETIMEDOUT (the region's lock cannot be had).
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

/* The driver is about to end the context; with 0: after quota_context_end, or if it has not ended.
 * One thread at a time. */
void quota_context_ending(uint64_t context);

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

/* The bytes that are charged for the process's contexts and modules. */
uint64_t quota_driver_bytes(int device);

/* Refunds the bytes of a call that was undone. Called between quota_ending_begin and
 * quota_ending_end, like the driver's call that undid it. */
void quota_driver_return(int device, uint64_t bytes);

/* -- inside quota/ -- */

/*
 * All contexts of the device together take context_bytes. So the contexts whose cost was a guess
 * share the bytes that the other contexts do not take. False if that cannot be, because it is less
 * than contexts can take. Then NVML's figure belongs to another process, whose pid in another
 * namespace equals ours.
 */
bool contexts_settle(int device, uint64_t context_bytes);

/* The bytes that the device's contexts take at least. */
uint64_t contexts_least(int device);

void contexts_forked(void); /* in a forked child */
