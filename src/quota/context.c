/*
 * Contexts against the slice.
 *
 * The cost of a context depends on the GPU and the driver (518 MiB on an H200 with driver 580).
 * Only NVML reports it exactly. That takes 12 ms the first time in a process, too long for every
 * start. So the first context in a slice reserves more than enough. It is then charged the most
 * that the device can hold for it, and is settled to the byte during its first allocation. From
 * then on the slice knows the cost (own.device[].context_cost) and reserves just that. Code and
 * variables that were loaded before that allocation are in the cost. Each later comparison that
 * shows less lowers it. If it does not fit in an empty slice, it is taken for unknown.
 *
 * The device also holds memory for a process that is in no process's NVML figure. On an H200, it is
 * 3.25 MiB since cuInit and 5.57 MiB for each context. It is charged as `offset`.
 *
 * Always: the process's context class on a device is the sum of its records' bytes, as long as
 * fewer than RECORDS_MAX contexts live. With the last of a device's contexts, all classes but data
 * go to 0.
 */
#include "context.h"

#include <errno.h>
#include <string.h>

#include "account.h"
#include "allocation.h"
#include "blocks.h"
#include "compare.h"
#include "export.h"
#include "holding.h"
#include "import.h"
#include "lock.h"
#include "moved.h"
#include "pool.h"

#define RECORDS_MAX          256
#define ENDED_MAX            64 /* that are remembered */
#define PROCESS_HIDDEN_BYTES ((uint64_t)4 << 20)
#define CONTEXT_HIDDEN_BYTES ((uint64_t)6 << 20)

struct record {
	uint64_t context;     /* 0: free */
	uint64_t bytes;       /* charged as REGION_CONTEXT */
	uint64_t least_bytes; /* a lower figure would be another process's */
	int device;
	bool guess; /* `bytes` is one, on the high side */
};

static struct lock lock = LOCK_INIT;
static struct record records[RECORDS_MAX]; /* under `lock` */
static unsigned living[VGPU_DEVICES_MAX];  /* contexts, and those being made; under `lock` */
static unsigned all_living;                /* their sum; under `lock` */
static uint64_t last_ended[ENDED_MAX];     /* the last contexts that ended, in turn; under `lock` */
static uint64_t ends;                      /* how many have; written under `lock`, atomic */

void contexts_forked(void)
{
	lock_init(&lock);
	memset(records, 0, sizeof(records));
	memset(living, 0, sizeof(living));
	all_living = 0;
}

static uint64_t *learned_cost(int device)
{
	return &account_region.file->own.device[account_device(device)->index].context_cost;
}

static uint64_t known_cost(int device)
{
	return region_is_there(&account_region)
		       ? __atomic_load_n(learned_cost(device), __ATOMIC_RELAXED)
		       : 0;
}

bool quota_context_cost_known(int device)
{
	return known_cost(device) != 0;
}

/* A figure may have modules in it, so the lowest one is the best. Two processes that learn at once
 * may leave either's: both were seen. */
static void learn_cost(int device, uint64_t bytes)
{
	uint64_t known = known_cost(device);

	if (bytes && (!known || bytes < known) && region_is_there(&account_region))
		__atomic_store_n(learned_cost(device), bytes, __ATOMIC_RELAXED);
}

static int charge(int device, enum region_class class, uint64_t least, uint64_t most,
		  uint64_t *ret_bytes)
{
	const struct account_device *d = account_device(device);

	return region_charge_range(&account_region, d->index, class, least, most,
				   quota_limit(device), ret_bytes);
}

/* -- making one -- */

/* Counts a context in. ret_hidden: its bytes that no NVML figure will show. False: there are too
 * many. */
static bool enter_living(int device, uint64_t *ret_hidden)
{
	bool room;

	lock_acquire(&lock);
	room = all_living < RECORDS_MAX;
	if (room) {
		all_living++;
		*ret_hidden = CONTEXT_HIDDEN_BYTES + (living[device]++ ? 0 : PROCESS_HIDDEN_BYTES);
	}
	lock_release(&lock);
	return room;
}

/* Counts it out, and gives back what was charged for it. After the end of the last context, the
 * device holds nothing more for this process, and every class but data is refunded. */
static void leave_living(int device, uint64_t context_bytes, bool hidden_is_charged)
{
	struct vgpu_hami_usage usage;
	bool last;

	lock_acquire(&lock);
	last = --living[device] == 0;
	all_living--;
	lock_release(&lock);
	if (last)
		compare_expect_nothing(device);
	usage = account_usage(device);
	account_refund_as(REGION_CONTEXT, device, last ? usage.context : context_bytes);
	if (hidden_is_charged)
		account_refund_as(REGION_OFFSET, device,
				  CONTEXT_HIDDEN_BYTES + (last ? PROCESS_HIDDEN_BYTES : 0));
	account_refund_as(REGION_MODULE, device, last ? usage.module : 0);
	compare_guess_over(device, last);
}

/* known: 0: the cost is not known. */
static int charge_context(struct quota_context_reservation *reservation, uint64_t known)
{
	int device = reservation->device;

	if (!known)
		region_guess_begin(&account_region, account_device(device)->index);
	reservation->known = known != 0;
	return charge(device, REGION_CONTEXT, known ? known : reservation->least_bytes,
		      known ? known : CONTEXT_BYTES_MOST, &reservation->bytes);
}

/* Whether the slice holds nothing on the device but what was just charged for a context. */
static bool holds_no_more(int device, uint64_t bytes)
{
	return region_used(&account_region, account_device(device)->index) <= bytes;
}

int quota_context_reserve(int device, uint64_t least_bytes,
			  struct quota_context_reservation *ret_reservation)
{
	struct quota_context_reservation reservation = {.device = device,
							.least_bytes = least_bytes};
	uint64_t known = known_cost(device), hidden;
	int error;

	if (!enter_living(device, &hidden))
		return -EDQUOT;
	account_begin();
	error = charge(device, REGION_OFFSET, hidden, hidden, &reservation.hidden_bytes);
	if (!error)
		error = charge_context(&reservation, known);
	if (error == -EDQUOT && known && holds_no_more(device, reservation.hidden_bytes))
		error = charge_context(&reservation, 0);
	if (error) {
		leave_living(device, 0, reservation.hidden_bytes > 0);
		account_end();
		return error;
	}
	*ret_reservation = reservation;
	return 0;
}

void quota_context_cancel(const struct quota_context_reservation *reservation)
{
	leave_living(reservation->device, reservation->bytes, true);
	account_end();
}

/* -- settling it -- */

static void add_record(const struct record *record)
{
	lock_acquire(&lock);
	for (unsigned i = 0; i < RECORDS_MAX; i++)
		if (!records[i].context) {
			records[i] = *record;
			break;
		}
	lock_release(&lock);
}

bool quota_knows_context(uint64_t context)
{
	bool known = false;

	lock_acquire(&lock);
	for (unsigned i = 0; i < RECORDS_MAX && !known; i++)
		known = context && records[i].context == context;
	lock_release(&lock);
	return known;
}

bool quota_has_context(int device)
{
	bool has = false;

	lock_acquire(&lock);
	for (unsigned i = 0; i < RECORDS_MAX && !has; i++)
		has = records[i].context && records[i].device == device;
	lock_release(&lock);
	return has;
}

bool quota_context_is_tight(const struct quota_context_reservation *reservation,
			    uint64_t at_most_bytes)
{
	return !reservation->known && reservation->bytes < CONTEXT_BYTES_MOST &&
	       at_most_bytes > reservation->bytes;
}

/* NVML's expected figure for the process's other contexts and their contents, by the accounts. */
static uint64_t counted_otherwise(const struct quota_context_reservation *reservation)
{
	struct vgpu_hami_usage usage = account_usage(reservation->device);

	return usage.context - reservation->bytes + usage.module +
	       compare_data(reservation->device, &usage);
}

int quota_context_settle(const struct quota_context_reservation *reservation, uint64_t context,
			 uint64_t at_most_bytes, uint64_t measured_bytes)
{
	uint64_t bytes = reservation->bytes, got;

	if (measured_bytes) {
		uint64_t others = counted_otherwise(reservation);

		bytes = measured_bytes > others ? measured_bytes - others : 0;
		if (bytes < reservation->least_bytes) /* a figure that cannot be */
			bytes = at_most_bytes;
	} else if (!reservation->known && (at_most_bytes < bytes || bytes < CONTEXT_BYTES_MOST)) {
		bytes = at_most_bytes < CONTEXT_BYTES_MOST ? at_most_bytes : CONTEXT_BYTES_MOST;
	}
	if (bytes > reservation->bytes &&
	    charge(reservation->device, REGION_CONTEXT, bytes - reservation->bytes,
		   bytes - reservation->bytes, &got) != 0) {
		return -EDQUOT;
	}
	if (bytes < reservation->bytes)
		account_refund_as(REGION_CONTEXT, reservation->device, reservation->bytes - bytes);
	add_record(&(struct record){.context = context,
				    .bytes = bytes,
				    .least_bytes = reservation->least_bytes,
				    .device = reservation->device,
				    .guess = !reservation->known});
	if (!reservation->known)
		compare_new_context(reservation->device);
	account_end();
	return 0;
}

uint64_t quota_context_ends(void)
{
	return __atomic_load_n(&ends, __ATOMIC_SEQ_CST);
}

/* Its handle may be another context's by now, which has what is recorded for it. */
bool quota_context_has_ended(uint64_t context, uint64_t ends_before)
{
	bool ended = false;

	if (quota_context_ends() == ends_before || quota_knows_context(context))
		return false;
	lock_acquire(&lock);
	for (uint64_t i = ends_before; i < ends && ends - ends_before <= ENDED_MAX; i++)
		ended |= last_ended[i % ENDED_MAX] == context;
	lock_release(&lock);
	return ended;
}

/* Exported blocks are freed one by one, as other processes or descriptors may keep them. */
static void end_exports(uint64_t context)
{
	struct quota_release release;
	uint64_t address;

	while (context && exports_find_of(context, &address))
		if (quota_is_block_of(context, address) && quota_free_begin(address, &release))
			quota_free_commit(&release);
		else
			exports_end_replaced(exports_leave(address, context));
}

void quota_context_ending(uint64_t context)
{
	blocks_context_ending(context);
}

void quota_context_end(uint64_t context)
{
	struct record ended = {0};
	uint64_t bytes, managed_bytes;

	lock_acquire(&lock);
	for (unsigned i = 0; i < RECORDS_MAX; i++)
		if (records[i].context == context && context) {
			ended = records[i];
			records[i].context = 0;
		}
	if (ended.context) {
		last_ended[ends % ENDED_MAX] = context;
		/* Before its contents leave the accounts: a thread that records more afterwards
		 * looks at `ends`. */
		__atomic_store_n(&ends, ends + 1, __ATOMIC_SEQ_CST);
	}
	lock_release(&lock);
	end_exports(context);
	imports_end_context(context);
	if (!ended.context)
		return;
	blocks_remove_context(context, &bytes, &managed_bytes);
	holdings_end_context(context);
	account_refund_as(REGION_DATA, ended.device, bytes);
	account_return_managed(ended.device, managed_bytes);
	moved_end_context(context);
	account_return_spare(ended.device);
	leave_living(ended.device, ended.bytes, true);
}

/* -- what the driver takes on its own account -- */

int quota_driver_reserve(int device, uint64_t least_bytes, uint64_t most_bytes, uint64_t *ret_bytes)
{
	int error;

	*ret_bytes = 0;
	account_begin();
	error = charge(device, REGION_MODULE, least_bytes, most_bytes, ret_bytes);
	if (error)
		account_end();
	return error;
}

void quota_driver_settle(int device, uint64_t reserved_bytes, uint64_t kept_bytes)
{
	if (kept_bytes < reserved_bytes)
		account_refund_as(REGION_MODULE, device, reserved_bytes - kept_bytes);
	account_end();
}

int quota_driver_charge(int device, uint64_t bytes)
{
	uint64_t got;
	int error = 0;

	account_begin();
	if (bytes)
		error = charge(device, REGION_MODULE, bytes, bytes, &got);
	account_end();
	return error;
}

void quota_driver_charge_anyway(int device, uint64_t bytes)
{
	account_begin();
	account_orphan(device, bytes);
	account_end();
}

uint64_t quota_driver_bytes(int device)
{
	struct vgpu_hami_usage usage = account_usage(device);

	return usage.context + usage.module;
}

void quota_driver_return(int device, uint64_t bytes)
{
	account_refund_as(REGION_MODULE, device, bytes);
}

/* -- what they turn out to take -- */

uint64_t contexts_least(int device)
{
	uint64_t least = 0;

	lock_acquire(&lock);
	for (unsigned i = 0; i < RECORDS_MAX; i++)
		if (records[i].context && records[i].device == device)
			least += records[i].least_bytes;
	lock_release(&lock);
	return least;
}

static bool is_guess(const struct record *record, int device)
{
	return record->context && record->device == device && record->guess;
}

/* The contexts whose cost is a guess share the bytes. Contexts of a device cost the same. */
static void settle_guesses_locked(int device, uint64_t bytes, unsigned guesses)
{
	for (unsigned i = 0; i < RECORDS_MAX && guesses; i++) {
		if (!is_guess(&records[i], device))
			continue;
		records[i].bytes = bytes / guesses;
		records[i].guess = false;
		bytes -= records[i].bytes;
		guesses--;
		learn_cost(device, records[i].bytes);
	}
}

bool contexts_settle(int device, uint64_t context_bytes)
{
	uint64_t known = 0, least = 0, least_of_guesses = 0;
	unsigned guesses = 0, all = 0;
	bool plausible;

	lock_acquire(&lock);
	for (unsigned i = 0; i < RECORDS_MAX; i++) {
		if (!records[i].context || records[i].device != device)
			continue;
		all++;
		least += records[i].least_bytes;
		if (!records[i].guess) {
			known += records[i].bytes;
			continue;
		}
		guesses++;
		if (records[i].least_bytes > least_of_guesses)
			least_of_guesses = records[i].least_bytes;
	}
	plausible = context_bytes >= least;
	if (plausible && context_bytes >= known + guesses * least_of_guesses)
		settle_guesses_locked(device, context_bytes - known, guesses);
	if (plausible && all && !guesses)
		learn_cost(device, context_bytes / all);
	lock_release(&lock);
	return plausible;
}
