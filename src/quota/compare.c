/*
 * The comparison of the accounts with NVML. NVML's figure for the process also has the memory that
 * no hook can measure: code, local memory, and the cost of a context.
 *
 * NVML's figure, less the data that are charged and in that figure, is the memory that the driver
 * holds on its own account. From these bytes the contexts are settled, and the rest is charged as
 * module memory.
 *
 * The ticket is taken before NVML is asked. The two figures are of one moment only if nothing of
 * the process was under way between the ticket and the booking. Otherwise the ledger's peak since
 * the ticket is the highest sum that the accounts had. Bytes that NVML counts above that peak are
 * held in any case, and are charged at once. Some threads stay long in the driver, or allocate all
 * the time. They keep the comparison from lowering the accounts, but never from raising them.
 *
 * If allocations or frees were under way whenever NVML is asked, unloaded code and the guess of a
 * new context would stay charged. So after some comparisons that show too much in the accounts, the
 * caller is asked to let the process rest for a moment (quota_wants_rest).
 *
 * A figure that is less than the process's contexts can take belongs to another process, whose pid
 * in another namespace equals ours. A figure far above the accounts most likely belongs to another
 * process, too. Then the caller looks for this process in NVML's list (quota_doubts). If NVML never
 * gave another figure, and the process was not found, NVML is not believed any more.
 */
#include "compare.h"

#include <string.h>

#include "account.h"
#include "allocation.h"
#include "blocks.h"
#include "clock.h"
#include "context.h"
#include "holding.h"
#include "import.h"
#include "lock.h"
#include "pool.h"

#define RECONCILE_INTERVAL_NS (20 * NS_PER_MS)
#define NARROW_INTERVAL_NS    (2 * NS_PER_MS) /* where the slice is nearly full */
#define ODD_MOST              5 /* implausible figures in a row, before NVML is doubted */
#define NARROW_BYTES          ((uint64_t)512 << 20)
#define OVER_LEAST            5 /* comparisons in a row that show too much in the accounts */
#define REST_INTERVAL_NS      NS_PER_S
#define GUESS_INTERVAL_NS     (10 * NS_PER_MS) /* while threads keep comparisons from being made */

/*
 * NVML mostly answers within 10 us; with several GPUs, a millisecond was seen. Where a comparison
 * takes longer, comparisons take at most 1 % of the time, and at most 10 % where one is urgent:
 * before an allocation, because the slice is nearly full or because code was loaded. The intervals
 * that follow from this are bounded, as the driver's own memory is held by comparisons alone.
 *
 * Code makes a comparison due at once while a token bucket has what the comparison takes. The
 * bucket holds CODE_BURST_NS, and fills in 1 % of the time.
 */
#define ANSWER_TIMES        100
#define ANSWER_TIMES_URGENT 10
#define ANSWER_MOST_NS      (500 * NS_PER_MS)
#define CODE_BURST_NS       (100 * NS_PER_MS)

static uint64_t code_paid_ns; /* when the token bucket for code will be full; atomic */

/* About how long a comparison takes; atomic. A quick one counts at once. Slow ones at most double
 * the figure each, as a question starts NVML, or the thread loses its processor meanwhile. */
static uint64_t answer_ns;
#define ANSWER_LEAST_NS (10 * NS_PER_US)

static bool unmeasured[VGPU_DEVICES_MAX];        /* the newest context's cost is a guess */
static uint64_t reconciled_ns[VGPU_DEVICES_MAX]; /* when last, 0: never; coarse clock */
static bool believed[VGPU_DEVICES_MAX];          /* NVML has said something plausible; atomic */
static unsigned odd[VGPU_DEVICES_MAX];           /* how often in a row it has not, at rest */
static bool found; /* the process was found in NVML's list; the comparing thread writes it */
/* The growth that the last comparison saw and did not believe yet; the comparing thread writes it.
 */
static uint64_t suspect_bytes[VGPU_DEVICES_MAX];

/* How often in a row the accounts were above NVML's figure while something moved, and when rest was
 * last requested. The comparing thread writes both. */
static unsigned over[VGPU_DEVICES_MAX];
static uint64_t rest_ns[VGPU_DEVICES_MAX];

/* How often code was expected. code_seen is that count at the time when NVML was last asked, for
 * each device; the comparing thread writes it. All atomic. A comparison is due while they differ.
 */
static uint64_t code_expected;
static uint64_t code_seen[VGPU_DEVICES_MAX];

/* Bytes that are charged and that the driver will take later, each reservation in one piece; under
 * `expecting`. */
static struct lock expecting = LOCK_INIT;
static uint64_t expected_bytes[VGPU_DEVICES_MAX];
static uint64_t piece_bytes[VGPU_DEVICES_MAX]; /* the smallest of them */
static uint64_t seen_bytes[VGPU_DEVICES_MAX];  /* NVML's last figure without contexts and data */

static uint64_t traced_bytes[VGPU_DEVICES_MAX]; /* NVML's figure in the last entry; atomic */

void compare_forked(void)
{
	memset(traced_bytes, 0, sizeof(traced_bytes));
	lock_init(&expecting);
	memset(expected_bytes, 0, sizeof(expected_bytes));

	memset(unmeasured, 0, sizeof(unmeasured));
	memset(believed, 0, sizeof(believed));
	memset(odd, 0, sizeof(odd));
	found = false;
	memset(suspect_bytes, 0, sizeof(suspect_bytes));
	memset(over, 0, sizeof(over));
	memset(rest_ns, 0, sizeof(rest_ns));
	memset(code_seen, 0, sizeof(code_seen));
	code_expected = 0;
}

void compare_new_context(int device)
{
	__atomic_store_n(&reconciled_ns[device], 0, __ATOMIC_RELAXED);
	__atomic_store_n(&unmeasured[device], true, __ATOMIC_RELEASE);
	region_guess_begin(&account_region, account_device(device)->index);
}

void compare_guess_over(int device, bool none_left)
{
	if (none_left || !__atomic_load_n(&unmeasured[device], __ATOMIC_ACQUIRE))
		region_guess_end(&account_region, account_device(device)->index);
}

/* -- when ------------------------------------------------------------------------------------- */

bool quota_is_narrow(int device)
{
	uint64_t limit = quota_limit(device), used = quota_used(device);
	uint64_t margin = limit / 8 > NARROW_BYTES ? limit / 8 : NARROW_BYTES;

	return limit && (used >= limit || limit - used < margin);
}

static bool is_believed(int device)
{
	return __atomic_load_n(&believed[device], __ATOMIC_RELAXED);
}

bool quota_is_compared(int device)
{
	return is_believed(device);
}

/* False until NVML was asked once, because a new function alone must not start NVML. */
static bool is_code_due(int device)
{
	return is_believed(device) && __atomic_load_n(&code_seen[device], __ATOMIC_RELAXED) !=
					      __atomic_load_n(&code_expected, __ATOMIC_RELAXED);
}

void quota_reconcile_took(uint64_t ns)
{
	uint64_t before_ns = __atomic_load_n(&answer_ns, __ATOMIC_RELAXED);
	uint64_t most_ns = 2 * (before_ns > ANSWER_LEAST_NS ? before_ns : ANSWER_LEAST_NS);

	__atomic_store_n(&answer_ns, ns < most_ns ? ns : most_ns, __ATOMIC_RELAXED);
}

/* The interval, or a longer one if NVML takes long. */
static uint64_t affordable_ns(uint64_t interval_ns, uint64_t times)
{
	uint64_t least_ns = times * __atomic_load_n(&answer_ns, __ATOMIC_RELAXED);

	if (least_ns > ANSWER_MOST_NS)
		least_ns = ANSWER_MOST_NS;
	return interval_ns > least_ns ? interval_ns : least_ns;
}

/* Whether the token bucket for code has what a comparison takes, which it loses then. Of two
 * threads at once, one may pay for both. */
static bool pay_for_code(uint64_t now)
{
	uint64_t paid = __atomic_load_n(&code_paid_ns, __ATOMIC_RELAXED);
	uint64_t until = paid > now ? paid : now;

	until += ANSWER_TIMES * __atomic_load_n(&answer_ns, __ATOMIC_RELAXED);
	if (until - now > ANSWER_TIMES * CODE_BURST_NS)
		return false;
	__atomic_store_n(&code_paid_ns, until, __ATOMIC_RELAXED);
	return true;
}

/* `hurries`: the comparison is urgent if the slice is nearly full, or if code was loaded. */
static bool is_due(int device, bool hurries)
{
	uint64_t now = clock_coarse_ns();
	uint64_t last = __atomic_load_n(&reconciled_ns[device], __ATOMIC_RELAXED);
	bool code = is_code_due(device), guess;
	uint64_t interval, urgent;

	if (!code && last && now - last < NARROW_INTERVAL_NS) /* the shortest interval */
		return false;
	interval = affordable_ns(RECONCILE_INTERVAL_NS, ANSWER_TIMES);
	urgent = affordable_ns(NARROW_INTERVAL_NS, ANSWER_TIMES_URGENT);
	guess = __atomic_load_n(&unmeasured[device], __ATOMIC_ACQUIRE);
	if (code && (urgent == NARROW_INTERVAL_NS || pay_for_code(now) ||
		     (hurries && now - last >= urgent))) {
		__atomic_store_n(&reconciled_ns[device], now, __ATOMIC_RELAXED);
		return true;
	}
	if (last == 0 && !guess) {
		/* The first look starts the clock: a short program never pays for NVML. */
		__atomic_store_n(&reconciled_ns[device], now, __ATOMIC_RELAXED);
		return false;
	}
	if (guess)
		interval = affordable_ns(GUESS_INTERVAL_NS, ANSWER_TIMES_URGENT);
	else if (hurries && now - last >= urgent && quota_is_narrow(device))
		interval = urgent;
	if (now - last < interval)
		return false;
	/* One thread gets true; the others see the new time. */
	return __atomic_compare_exchange_n(&reconciled_ns[device], &last, now, false,
					   __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

bool quota_reconcile_due(int device)
{
	return is_due(device, true);
}

bool quota_reconcile_due_at_wait(int device)
{
	return is_due(device, false);
}

/* Makes a comparison due in 10 ms, unless one is due earlier. */
void quota_reconcile_soon(int device)
{
	uint64_t then = clock_coarse_ns() - RECONCILE_INTERVAL_NS + GUESS_INTERVAL_NS;
	uint64_t last = __atomic_load_n(&reconciled_ns[device], __ATOMIC_RELAXED);

	if (last == 0 || last > then)
		__atomic_store_n(&reconciled_ns[device], then, __ATOMIC_RELAXED);
}

/* Pairs with the load of quota_reconcile_ticket. */
void quota_expect_code(void)
{
	__atomic_add_fetch(&code_expected, 1, __ATOMIC_RELEASE);
}

bool quota_is_at_rest(void)
{
	return account_stamp() != QUOTA_NO_STAMP;
}

bool quota_wants_rest(int device)
{
	uint64_t now = clock_coarse_ns();

	if (over[device] < OVER_LEAST || now - rest_ns[device] < REST_INTERVAL_NS)
		return false;
	rest_ns[device] = now;
	return true;
}

/* -- what the accounts say -------------------------------------------------------------------- */

uint64_t compare_data(int device, const struct vgpu_hami_usage *usage)
{
	uint64_t apart = account_managed_charge(device) + account_spare_charge(device) +
			 pool_spare_charge(device);

	return usage->data - (apart < usage->data ? apart : usage->data);
}

static uint64_t sum_of(const struct vgpu_hami_usage *usage)
{
	return usage->context + usage->module + usage->data;
}

static uint64_t max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

struct quota_ticket quota_reconcile_ticket(int device)
{
	struct quota_ticket ticket = {
		.code_expected = __atomic_load_n(&code_expected, __ATOMIC_ACQUIRE),
		.stamp = account_stamp(),
	};
	struct vgpu_hami_usage usage;

	/* NVML lacks data that a late refund still has charged, so `module` or `context` would
	 * become too low. */
	if (region_is_late(&account_region))
		ticket.stamp = QUOTA_NO_STAMP;
	ticket.managed_returns = account_managed_returns();
	ticket.managed_bytes = account_managed_charge(device);
	ticket.tentatives = account_tentatives();
	ticket.frees_in_part = account_frees_in_part();
	ticket.tried_bytes = pool_tried(device, &ticket.tries_bytes);
	ticket.watched = region_peak_begin(&account_region, account_device(device)->index) == 0;
	usage = account_usage(device);
	ticket.data_bytes = usage.data;
	ticket.sum_bytes = sum_of(&usage);
	return ticket;
}

/* The bytes that the driver may have taken since the ticket without a charge, for allocations that
 * test whether the memory it already holds suffices. */
static uint64_t unreserved_since(int device, const struct quota_ticket *ticket)
{
	bool tentative = ticket->tentatives & 1 || account_tentatives() != ticket->tentatives;
	uint64_t tries_bytes;

	pool_tried(device, &tries_bytes);
	return (tentative ? GRANULE_BYTES : 0) + ticket->tried_bytes +
	       (tries_bytes - ticket->tries_bytes);
}

/* The bytes that the driver may have held since the ticket for frees under way whose shared
 * granules other frees have refunded. */
static uint64_t freed_in_part_since(const struct quota_ticket *ticket)
{
	uint32_t begun =
		(uint32_t)(account_frees_in_part() >> 32) - (uint32_t)(ticket->frees_in_part >> 32);

	return 2 * GRANULE_BYTES * ((uint64_t)begun + (uint32_t)ticket->frees_in_part);
}

/* The most that NVML can have counted since the ticket if all that the device holds for the process
 * is in the accounts. Spare granules, also those of pools, are left in: a thread may be using them
 * just now. */
static uint64_t most_since(int device, const struct quota_ticket *ticket)
{
	unsigned index = account_device(device)->index;
	struct vgpu_hami_usage usage = account_usage(device);
	uint64_t most =
		max(max(ticket->sum_bytes, sum_of(&usage)), region_peak(&account_region, index));
	bool returned = account_managed_returns() != ticket->managed_returns;
	uint64_t managed = returned ? 0 : ticket->managed_bytes;

	return most - min(managed, most) + unreserved_since(device, ticket) +
	       freed_in_part_since(ticket);
}

/* The stamp shows only this process's changes. A charge that another process moved to this slot
 * shows in `data`. */
static bool is_quiet(int device, const struct quota_ticket *ticket)
{
	return ticket->stamp != QUOTA_NO_STAMP && account_stamp() == ticket->stamp &&
	       account_usage(device).data == ticket->data_bytes;
}

/* -- what is expected ------------------------------------------------------------------------- */

void quota_driver_expect(int device, uint64_t bytes)
{
	lock_acquire(&expecting);
	if (!expected_bytes[device] || bytes < piece_bytes[device])
		piece_bytes[device] = bytes;
	expected_bytes[device] += bytes;
	lock_release(&expecting);
}

uint64_t quota_driver_expect_less(int device, uint64_t bytes)
{
	lock_acquire(&expecting);
	bytes = min(bytes, expected_bytes[device]);
	expected_bytes[device] -= bytes;
	lock_release(&expecting);
	return bytes;
}

void compare_expect_nothing(int device)
{
	lock_acquire(&expecting);
	expected_bytes[device] = 0;
	seen_bytes[device] = 0;
	lock_release(&expecting);
}

static uint64_t expected(int device)
{
	uint64_t bytes;

	lock_acquire(&expecting);
	bytes = expected_bytes[device];
	lock_release(&expecting);
	return bytes;
}

/* NVML shows so many bytes in addition to contexts and data. If that figure grew by at least an
 * expected piece, the driver took the piece. From now on the comparison books its charge. */
static void look_for_pieces(int device, uint64_t bytes)
{
	uint64_t grown, taken = 0;

	lock_acquire(&expecting);
	grown = bytes - min(bytes, seen_bytes[device]);
	if (expected_bytes[device] && grown >= piece_bytes[device])
		taken = min(grown, expected_bytes[device]);
	expected_bytes[device] -= taken;
	seen_bytes[device] = bytes;
	lock_release(&expecting);
	account_lower(REGION_MODULE, device, taken);
}

/* The charges of the slot, less the bytes that are only expected. */
static struct vgpu_hami_usage usage_without_expected(int device)
{
	struct vgpu_hami_usage usage = account_usage(device);

	usage.module -= min(expected(device), usage.module);
	return usage;
}

/* -- what NVML says --------------------------------------------------------------------------- */

/* An implausible figure belongs to another process, if NVML never gave a plausible one. */
static bool is_distrusted(int device)
{
	return !found && !is_believed(device) && odd[device] >= ODD_MOST;
}

bool quota_doubts(int device, const struct quota_ticket *ticket, uint64_t nvml_bytes)
{
	return !found && (odd[device] >= ODD_MOST ||
			  nvml_bytes > most_since(device, ticket) + CONTEXT_BYTES_MOST);
}

void quota_found(void)
{
	found = true;
}

static void believe(int device)
{
	__atomic_store_n(&believed[device], true, __ATOMIC_RELAXED);
}

/* Changes a class by now_bytes - was_bytes, and sets no value: other threads may have changed it.
 */
static void adjust(int device, enum region_class class, uint64_t was_bytes, uint64_t now_bytes)
{
	if (now_bytes < was_bytes)
		account_lower(class, device, was_bytes - now_bytes);
	else
		account_charge_anyway(class, device, now_bytes - was_bytes);
}

/* If NVML shows less than is charged, the charge of small arrays is lowered by the difference, but
 * by no more than its doubt. Returns the bytes by which it was lowered. */
static uint64_t lower_doubts(int device, const struct vgpu_hami_usage *usage, uint64_t data,
			     uint64_t nvml_bytes)
{
	uint64_t charged = usage->context + usage->module + data, doubt = holdings_doubt(device);
	uint64_t less = charged > nvml_bytes ? charged - nvml_bytes : 0;

	if (less > doubt)
		less = doubt;
	less = granules_of(less);
	holdings_lower(device, less);
	return less;
}

static void settle_quiet(int device, const struct vgpu_hami_usage *usage, uint64_t own)
{
	bool guess = __atomic_exchange_n(&unmeasured[device], false, __ATOMIC_ACQ_REL);
	uint64_t modules = guess && usage->module < own ? usage->module : 0;

	if (!contexts_settle(device, own - modules)) {
		odd[device]++; /* or the accounts are too high by something: soon again */
		if (guess)
			__atomic_store_n(&unmeasured[device], true, __ATOMIC_RELEASE);
		return;
	}
	odd[device] = 0;
	believe(device);
	if (guess || own < usage->context) {
		adjust(device, REGION_MODULE, usage->module, modules);
		adjust(device, REGION_CONTEXT, usage->context, own - modules);
	} else {
		adjust(device, REGION_MODULE, usage->module, own - usage->context);
	}
}

/*
 * Returns the part of NVML's bytes above `most` that the process itself holds. NVML's figure may
 * include the bytes that the doubt names as elsewhere. Lent memory is in the figure of the process
 * that made it. It is in our figure only if that process has freed it and is about to withdraw its
 * charge. So growth that only lent memory could explain is believed when two comparisons show it.
 */
static uint64_t growth_above(int device, uint64_t most, uint64_t nvml_bytes,
			     const struct region_doubt *doubt)
{
	uint64_t above = nvml_bytes - min(nvml_bytes, most);
	uint64_t growth = above - min(above, doubt->elsewhere_bytes);
	uint64_t suspect = min(growth, doubt->lent_bytes);
	uint64_t before = suspect_bytes[device];

	suspect_bytes[device] = suspect;
	if (suspect > before)
		quota_reconcile_soon(device);
	return growth - suspect + min(suspect, before);
}

uint64_t quota_moved_here(int device)
{
	struct region_doubt doubt =
		region_share_doubt(&account_region, account_device(device)->index);

	return doubt.here_bytes + imports_moved(device);
}

/* The bytes that the driver holds on its own account. Where shared memory leaves doubt, the
 * accounts are neither raised nor lowered by the bytes of that doubt. */
static uint64_t own_bytes(int device, const struct vgpu_hami_usage *usage, uint64_t data,
			  uint64_t nvml_bytes)
{
	struct region_doubt doubt =
		region_share_doubt(&account_region, account_device(device)->index);
	uint64_t own = nvml_bytes > data ? nvml_bytes - data : 0;
	uint64_t booked = usage->context + usage->module;
	uint64_t growth = growth_above(device, booked + data, nvml_bytes, &doubt);

	if (own < booked)
		return min(own + quota_moved_here(device), booked);
	return own > booked ? booked + growth : own;
}

/* -- comparing -------------------------------------------------------------------------------- */

uint64_t quota_excess(int device, const struct quota_ticket *ticket, uint64_t nvml_bytes)
{
	struct vgpu_hami_usage usage = usage_without_expected(device);
	uint64_t books = usage.context + usage.module + compare_data(device, &usage);

	if (!is_quiet(device, ticket)) /* after the accounts were read */
		return 0;
	if (__atomic_load_n(&unmeasured[device], __ATOMIC_ACQUIRE))
		return 0; /* the charge of a context is too high */
	return books > nvml_bytes ? books - nvml_bytes : 0;
}

/* The accounts changed since the ticket. Bytes that NVML counts above the highest sum of the
 * accounts are held, and are charged. A lower figure of NVML may be of another moment, and changes
 * nothing. */
static void raise_moving(int device, const struct quota_ticket *ticket, uint64_t nvml_bytes)
{
	struct region_doubt doubt =
		region_share_doubt(&account_region, account_device(device)->index);
	uint64_t growth;

	if (!ticket->watched)
		return;
	if (nvml_bytes >= contexts_least(device))
		believe(device);
	growth = growth_above(device, most_since(device, ticket), nvml_bytes, &doubt);
	if (growth)
		account_orphan(device, growth);
}

/* Whether the accounts may be too high by something that a comparison at rest would lower. */
static bool is_over(int device, const struct vgpu_hami_usage *usage, uint64_t data,
		    uint64_t nvml_bytes)
{
	bool guess = __atomic_load_n(&unmeasured[device], __ATOMIC_ACQUIRE);

	return (guess || usage->module) && usage->context + usage->module + data > nvml_bytes;
}

static bool reconcile(int device, const struct quota_ticket *ticket, const uint64_t *nvml_bytes)
{
	struct vgpu_hami_usage usage = usage_without_expected(device);
	uint64_t data = compare_data(device, &usage), own;

	if (!nvml_bytes || is_distrusted(device)) {
		__atomic_store_n(&unmeasured[device], false, __ATOMIC_RELEASE);
		return true;
	}
	if (!is_quiet(device, ticket)) {
		over[device] = is_over(device, &usage, data, *nvml_bytes) ? over[device] + 1 : 0;
		raise_moving(device, ticket, *nvml_bytes);
		quota_reconcile_soon(device);
		return false;
	}
	over[device] = 0;
	if (!__atomic_load_n(&unmeasured[device], __ATOMIC_ACQUIRE))
		data -= lower_doubts(device, &usage, data, *nvml_bytes);
	own = own_bytes(device, &usage, data, *nvml_bytes);
	settle_quiet(device, &usage, own);
	look_for_pieces(device, own - min(own, account_usage(device).context));
	return true;
}

static uint64_t booked_on(int device)
{
	struct vgpu_hami_usage usage = account_usage(device);

	return sum_of(&usage);
}

/* A comparison that finds the same as the one before, and charges nothing, is not written. */
static void trace_compared(int device, uint64_t books_before, const uint64_t *nvml_bytes,
			   bool compared)
{
	uint64_t books = booked_on(device);
	uint64_t seen = nvml_bytes ? *nvml_bytes : UINT64_MAX;

	if (__atomic_exchange_n(&traced_bytes[device], seen, __ATOMIC_RELAXED) == seen &&
	    books == books_before)
		return;
	trace_add_event(&(struct trace_event){
		.kind = TRACE_COMPARED,
		.device = (int)account_device(device)->index,
		.reason = !nvml_bytes ? TRACE_REASON_SILENT
			  : !compared ? TRACE_REASON_MOVING
				      : TRACE_NO_REASON,
		.a = nvml_bytes ? (int64_t)*nvml_bytes : 0,
		.b = (int64_t)books_before,
		.c = (int64_t)(books - books_before),
	});
}

bool quota_reconcile(int device, const struct quota_ticket *ticket, const uint64_t *nvml_bytes)
{
	bool traced = trace_wants(TRACE_MEMORY);
	uint64_t before = traced ? booked_on(device) : 0;
	bool compared = reconcile(device, ticket, nvml_bytes);

	if (traced)
		trace_compared(device, before, nvml_bytes, compared);
	compare_guess_over(device, false);
	__atomic_store_n(&code_seen[device], ticket->code_expected, __ATOMIC_RELAXED);
	region_peak_end(&account_region, account_device(device)->index);
	return compared;
}
