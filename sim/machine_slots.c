/*
 * The slots of the shared machine file (machine_file.h) say how much each process holds of each
 * GPU.
 *
 * A process that dies while others live leaves its slot as it is. The next process that needs
 * memory, claims a slot or asks NVML finds the slot's byte unlocked, and frees the slot (reap).
 * Every change is a store of one word. So a process that is killed between two stores leaves a slot
 * that will be reaped, or an object without a payer, which gets a payer at that time.
 *
 * busy_until_ns needs no lock, as it only grows, by compare-and-swap (if pages move,
 * machine_pages.c takes the lock). The queued work of a dead process is removed when its slot is
 * reaped, unless another process has queued work after it.
 */
#include "machine_file.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "pids.h"

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now); /* the clock of timeline_now() */
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static bool slot_used(const struct slot *slot)
{
	return atomic_load(&slot->pid) != 0;
}

/* Removes work that dead processes have queued, unless a living process has queued work after it.
 */
static void queues_cut_locked(void)
{
	for (unsigned gpu = 0; gpu < SIM_GPUS_MAX; gpu++) {
		/* Pairs with machine_queue, which stores its slot's word before busy_until_ns. */
		uint64_t busy = atomic_load(&machine->busy_until_ns[gpu]), latest = 0;

		for (unsigned i = 0; i < machine_slots_seen(); i++) {
			const struct slot *slot = &machine->slots[i];
			uint64_t queued = atomic_load(&slot->shares[gpu].queued_until_ns);

			if (slot_used(slot) && queued > latest)
				latest = queued;
		}
		if (latest < busy)
			atomic_compare_exchange_strong(&machine->busy_until_ns[gpu], &busy, latest);
	}
}

void machine_reap_locked(void)
{
	bool reaped = false;

	for (unsigned i = 0; i < machine_slots_seen(); i++) {
		struct slot *slot = &machine->slots[i];

		if (slot == machine_own || !slot_used(slot) ||
		    machine_byte_held_by_other(machine_fd, LOCK_SLOT + (off_t)i))
			continue;
		machine_objects_leave_locked(i);
		atomic_store(&slot->pid, 0);
		reaped = true;
	}
	if (reaped)
		queues_cut_locked();
	machine_objects_settle_locked();
}

static void shares_clear(struct slot *slot)
{
	for (unsigned gpu = 0; gpu < SIM_GPUS_MAX; gpu++) {
		struct share *share = &slot->shares[gpu];

		atomic_store(&share->memory_bytes, 0);
		atomic_store(&share->managed_bytes, 0);
		atomic_store(&share->away_bytes, 0);
		atomic_store(&share->resident_bytes, 0);
		atomic_store(&share->hidden_bytes, 0);
		atomic_store(&share->contexts, 0);
		atomic_store(&share->queued_until_ns, 0);
		atomic_store(&share->queued_ns, 0);
	}
}

int machine_claim(void)
{
	int result = -EAGAIN;

	machine_lock();
	machine_reap_locked();
	for (unsigned i = 0; i < SLOTS && !machine_own; i++) {
		struct slot *slot = &machine->slots[i];

		if (slot_used(slot) || machine_byte_lock(machine_fd, F_WRLCK, LOCK_SLOT + (off_t)i))
			continue;
		shares_clear(slot);
		if (i >= machine_slots_seen())
			atomic_store(&machine->slots_seen, i + 1);
		pids_record(config_get()->state_path, i);
		atomic_store(&slot->pid_space, pids_space());
		atomic_store(&slot->claimed_ns, now_ns());
		atomic_store(&slot->pid, (uint32_t)getpid());
		machine_own = slot;
	}
	if (machine_own)
		result = 0;
	machine_unlock();
	return result;
}

uint64_t machine_used_locked(unsigned gpu)
{
	uint64_t used = 0;

	for (unsigned i = 0; i < machine_slots_seen(); i++) {
		const struct slot *slot = &machine->slots[i];
		const struct share *share = &slot->shares[gpu];

		if (slot_used(slot))
			used += atomic_load(&share->memory_bytes) +
				atomic_load(&share->managed_bytes) +
				atomic_load(&share->hidden_bytes);
	}
	return used + machine_objects_used_locked(gpu);
}

void machine_note_peak_locked(unsigned gpu)
{
	_Atomic uint64_t *peak = &machine->peak_bytes[gpu];

	if (machine_used_locked(gpu) <= atomic_load(peak))
		return;
	machine_reap_locked(); /* the dead have nothing */
	machine_raise(peak, machine_used_locked(gpu));
}

int machine_take(unsigned gpu, const struct machine_holding *more)
{
	uint64_t total = machine->total_bytes[gpu];
	uint64_t bytes = more->memory_bytes + more->managed_bytes + more->hidden_bytes;
	int result = -ENOMEM;

	machine_lock();
	uint64_t used = machine_used_locked(gpu);
	if (used > total || bytes > total - used) {
		machine_reap_locked();
		used = machine_used_locked(gpu);
	}
	if (used <= total && bytes <= total - used) {
		struct share *share = &machine_own->shares[gpu];

		atomic_fetch_add(&share->memory_bytes, more->memory_bytes);
		atomic_fetch_add(&share->managed_bytes, more->managed_bytes);
		atomic_fetch_add(&share->resident_bytes, more->managed_bytes);
		atomic_fetch_add(&share->hidden_bytes, more->hidden_bytes);
		atomic_fetch_add(&share->contexts, more->contexts);
		machine_note_peak_locked(gpu);
		result = 0;
	}
	machine_unlock();
	return result;
}

uint64_t machine_take_managed(unsigned gpu, uint64_t bytes)
{
	uint64_t total = machine->total_bytes[gpu];
	struct share *share = &machine_own->shares[gpu];

	machine_lock();
	machine_reap_locked();
	uint64_t used = machine_used_locked(gpu), left = used < total ? total - used : 0;
	uint64_t taken = bytes < left ? bytes : left;
	atomic_fetch_add(&share->managed_bytes, taken);
	atomic_fetch_add(&share->resident_bytes, taken);
	atomic_fetch_add(&share->away_bytes, bytes - taken);
	machine_note_peak_locked(gpu);
	machine_unlock();
	return taken;
}

void machine_give(unsigned gpu, const struct machine_holding *less)
{
	machine_lock();
	struct share *share = &machine_own->shares[gpu];
	SIM_ASSERT(atomic_load(&share->memory_bytes) >= less->memory_bytes);
	SIM_ASSERT(atomic_load(&share->managed_bytes) >= less->managed_bytes);
	SIM_ASSERT(atomic_load(&share->away_bytes) >= less->away_bytes);
	SIM_ASSERT(atomic_load(&share->hidden_bytes) >= less->hidden_bytes);
	SIM_ASSERT(atomic_load(&share->contexts) >= less->contexts);
	atomic_fetch_sub(&share->memory_bytes, less->memory_bytes);
	atomic_fetch_sub(&share->managed_bytes, less->managed_bytes);
	atomic_fetch_sub(&share->away_bytes, less->away_bytes);
	uint64_t wanted = atomic_load(&share->managed_bytes) + atomic_load(&share->away_bytes);
	if (atomic_load(&share->resident_bytes) > wanted)
		atomic_store(&share->resident_bytes, wanted);
	atomic_fetch_sub(&share->hidden_bytes, less->hidden_bytes);
	atomic_fetch_sub(&share->contexts, less->contexts);
	machine_unlock();
}

uint64_t machine_used_bytes(unsigned gpu)
{
	machine_lock();
	machine_reap_locked();
	uint64_t used = machine_used_locked(gpu);
	machine_unlock();
	return used;
}

uint64_t machine_peak(unsigned gpu)
{
	machine_lock();
	machine_reap_locked();
	uint64_t peak = atomic_load(&machine->peak_bytes[gpu]);
	atomic_store(&machine->peak_bytes[gpu], machine_used_locked(gpu));
	machine_unlock();
	return peak;
}

/* For how long in the period the GPU did the slot's work. */
static uint64_t busy_in(const struct slot *slot, unsigned gpu, uint64_t period)
{
	uint64_t word = atomic_load(&slot->shares[gpu].busy[period % BUSY_PERIODS]);

	if ((uint32_t)(word >> 32) != (uint32_t)period ||
	    period < atomic_load(&slot->claimed_ns) / BUSY_PERIOD_NS)
		return 0;
	return (uint32_t)word;
}

/* For how long the GPU did the slot's work in the periods before the present one. */
static uint64_t busy_ns(const struct slot *slot, unsigned gpu)
{
	uint64_t present = now_ns() / BUSY_PERIOD_NS, busy = 0;

	for (unsigned i = 1; i <= BUSY_WINDOW && i <= present; i++)
		busy += busy_in(slot, gpu, present - i);
	return busy;
}

static unsigned percent(uint64_t busy)
{
	uint64_t window = (uint64_t)BUSY_WINDOW * BUSY_PERIOD_NS;

	return busy < window ? (unsigned)((busy * 100 + window / 2) / window) : 100;
}

unsigned machine_busy_pct(unsigned gpu)
{
	uint64_t busy = 0;

	machine_lock();
	machine_reap_locked();
	for (unsigned i = 0; i < machine_slots_seen(); i++) {
		if (slot_used(&machine->slots[i]))
			busy += busy_ns(&machine->slots[i], gpu);
	}
	machine_unlock();
	return percent(busy);
}

unsigned machine_processes(unsigned gpu, struct machine_process *ret_processes, unsigned max)
{
	unsigned count = 0;

	machine_lock();
	machine_reap_locked();
	for (unsigned i = 0; i < machine_slots_seen(); i++) {
		const struct slot *slot = &machine->slots[i];
		const struct share *share = &slot->shares[gpu];

		if (!slot_used(slot) || !atomic_load(&share->contexts))
			continue;
		unsigned pid = pids_of(config_get()->state_path, i, atomic_load(&slot->pid),
				       atomic_load(&slot->pid_space));
		if (!pid)
			continue;
		if (count < max) {
			ret_processes[count].pid = pid;
			ret_processes[count].memory_bytes = atomic_load(&share->memory_bytes) +
							    machine_objects_paid_locked(gpu, i);
			ret_processes[count].busy_pct = percent(busy_ns(slot, gpu));
		}
		count++;
	}
	machine_unlock();
	return count;
}

void machine_raise(_Atomic uint64_t *word, uint64_t value)
{
	uint64_t seen = atomic_load(word);

	while (seen < value && !atomic_compare_exchange_weak(word, &seen, value))
		;
}

static void busy_add(_Atomic uint64_t *word, uint64_t period, uint64_t add_ns)
{
	uint64_t seen = atomic_load(word), next;

	do {
		uint64_t before = (uint32_t)(seen >> 32) == (uint32_t)period ? (uint32_t)seen : 0;

		next = (uint64_t)(uint32_t)period << 32 | (before + add_ns);
	} while (!atomic_compare_exchange_weak(word, &seen, next));
}

void machine_busy(unsigned gpu, uint64_t from_ns, uint64_t to_ns)
{
	uint64_t last = now_ns() / BUSY_PERIOD_NS + BUSY_PERIODS - BUSY_WINDOW - 1;

	while (from_ns < to_ns && from_ns / BUSY_PERIOD_NS < last) {
		uint64_t period = from_ns / BUSY_PERIOD_NS, end = (period + 1) * BUSY_PERIOD_NS;

		end = end < to_ns ? end : to_ns;
		busy_add(&machine_own->shares[gpu].busy[period % BUSY_PERIODS], period,
			 end - from_ns);
		from_ns = end;
	}
}

uint64_t machine_worked_ns(unsigned gpu, uint64_t at_ns)
{
	const struct share *share = &machine_own->shares[gpu];
	uint64_t queued = atomic_load(&share->queued_ns);
	uint64_t until = atomic_load(&share->queued_until_ns);
	uint64_t left = until > at_ns ? until - at_ns : 0;

	return left < queued ? queued - left : 0;
}

uint64_t machine_busy_until(unsigned gpu)
{
	return atomic_load(&machine->busy_until_ns[gpu]);
}

uint64_t machine_queue(unsigned gpu, uint64_t not_before_ns, uint64_t duration_ns)
{
	_Atomic uint64_t *busy = &machine->busy_until_ns[gpu];
	uint64_t seen = atomic_load(busy), end;

	if (duration_ns)
		duration_ns += machine_pages_bring(gpu);
	do {
		end = (seen > not_before_ns ? seen : not_before_ns) + duration_ns;
		if (!duration_ns)
			return end;
		machine_raise(&machine_own->shares[gpu].queued_until_ns, end);
	} while (!atomic_compare_exchange_weak(busy, &seen, end));
	atomic_fetch_add(&machine_own->shares[gpu].queued_ns, duration_ns);
	machine_busy(gpu, end - duration_ns, end);
	return end;
}
