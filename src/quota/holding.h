/*
 * Memory that the driver holds under a handle, as a whole, until the last reference to it is gone:
 *
 *   HOLDING_PHYSICAL  cuMemCreate. References: its handles, its mappings, and its bindings to
 *                     multicast objects and sparse arrays. It belongs to the process, not to a
 *                     context. Multicast objects are of this kind too, at no charge.
 *   HOLDING_ARRAY     arrays and mipmapped arrays; end with their context. Sparse arrays have no
 *                     charge. Arrays of up to 1 MiB share granules among themselves (seen on an
 *                     H200 with driver 580), and the driver does not say which: see small.h.
 *   HOLDING_IMPORT    imported memory of a process outside the slice; ends with its context. NVML
 *                     counts it for the exporter, so it is charged as `offset`.
 *
 * The order is as with allocations: reserve, ask the driver, add or cancel; and the reverse to
 * release. Handles that are not known are left to the driver. Thread-safe: one lock, before the
 * region's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum holding_kind { HOLDING_PHYSICAL, HOLDING_ARRAY, HOLDING_IMPORT };
#define HOLDING_KINDS 3

struct holding_reservation {
	enum holding_kind kind;
	int device;
	bool shared;      /* with others, in a granule */
	uint64_t context; /* which it is in; 0: none */
	uint64_t bytes;   /* what it costs; if it is shared, its size */
};

/* Reserves room for size_bytes in that context (0: in none). 0, -EDQUOT, -ETIMEDOUT. */
int quota_holding_reserve(enum holding_kind kind, int device, uint64_t context, uint64_t size_bytes,
			  struct holding_reservation *ret_reservation);
void quota_holding_cancel(const struct holding_reservation *reservation);

/* The driver gave the handle. 0, or -ENOMEM: there is no memory for the record. Then the
 * reservation stands, and the caller releases the handle and cancels. */
int quota_holding_add(const struct holding_reservation *reservation, uint64_t handle);

struct holding_release;

/* A number for physical memory, by its serial. It is no address, and no other memory gets it. */
static inline uint64_t quota_holding_number(uint32_t serial)
{
	return (uint64_t)1 << 63 | serial;
}

/*
 * A reference that a call of the driver makes, or is about to make. It is of the memory that had
 * the handle when the reference began. The driver may give the handle to other memory before the
 * call returns. quota_reference_begin returns whether the handle is known. Each reference that
 * begins is kept, dropped, or passed to quota_mapped (mapping.h) or quota_bound (binding.h).
 */
struct holding_reference {
	enum holding_kind kind;
	uint32_t serial;
	int device;
	uint64_t handle;
	uint64_t bytes;   /* what is charged for the memory */
	uint64_t address; /* of the mapping by which it was found */
	uint32_t mapping; /* the serial of that mapping; 0: it was found by its handle */
};
bool quota_reference_begin(enum holding_kind kind, uint64_t handle, struct holding_reference *ret);

/* Whether the handle is other memory's by now, or nobody's. */
bool quota_reference_is_stale(const struct holding_reference *reference);

/* The driver has made the reference. If the handle is other memory's by now, the reference is to
 * that memory, as the driver gives away no handle of memory with references. Then the answer is
 * true, and the caller drops *ret_old. */
bool quota_reference_renew(struct holding_reference *reference, struct holding_reference *ret_old);
void quota_reference_keep(const struct holding_reference *reference);

/* The driver does not have the reference. This is quota_holding_unref_begin for the reference. */
bool quota_reference_drop(const struct holding_reference *reference,
			  struct holding_release *ret_release);

/* Other processes may have references of their own to physical memory, or to a multicast object.
 * quota_holding_note_export returns its serial, or 0: the handle is not known. */
uint32_t quota_holding_note_export(uint64_t handle);
void quota_reference_note_export(const struct holding_reference *reference);

/* Whether the handle is known, and what is charged for it. */
bool quota_holding_charge(enum holding_kind kind, uint64_t handle, int *ret_device,
			  uint64_t *ret_bytes);

/*
 * The release of one reference; `bytes` are given back if it was the last. begin: before the
 * driver's call; false: the handle is not known. end: the driver has dropped the reference. The
 * memory is known until the last reference has ended, in whatever order calls of several threads
 * return. commit: gives the charge back with the last reference. It calls end first, if no caller
 * has. undo: the driver has refused.
 */
struct holding_release {
	enum holding_kind kind;
	uint32_t serial;
	uint64_t handle, context;
	uint64_t bytes;
	uint64_t address; /* of a mapping's reference: where it is */
	uint32_t mapping; /* the serial of that mapping; 0: the reference is no mapping's */
	int device;
	bool ended;
	bool replaced; /* after `ended`: the handle is other memory's */
	bool last;     /* before `ended`: as far as is known */
	bool shared;
	bool exported; /* other processes may refer to it */
};
bool quota_holding_unref_begin(enum holding_kind kind, uint64_t handle,
			       struct holding_release *ret_release);
void quota_holding_unref_end(struct holding_release *release);
void quota_holding_unref_commit(struct holding_release *release);
void quota_holding_unref_undo(struct holding_release *release);

/* holdings_doubt returns the charge of small arrays beyond the memory that they certainly take.
 * holdings_lower gives so many bytes of it back. */
uint64_t holdings_doubt(int device);
void holdings_lower(int device, uint64_t bytes);

void holdings_end_context(uint64_t context);
void holdings_forked(void); /* in a forked child */
