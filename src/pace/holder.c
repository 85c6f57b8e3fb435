#include "holder.h"

#include <limits.h>

#include "constants.h"
#include "gang_table.h"
#include "relaxed.h"
#include "sys.h"

#define WANTED 0x80000000u /* in `holder`: another member waits */

static uint32_t number_of(const struct gang *gang, const struct gang_member *self)
{
	return 1 + (uint32_t)(self->entry - gang->table->member);
}

bool holder_is_other(const struct gang *gang, const struct gang_member *self)
{
	return gang->kind == GANG_OF_DEVICE &&
	       (RELAXED_LOAD(gang->words->holder) & ~WANTED) != number_of(gang, self);
}

void holder_note_wait(struct gang_member *self, bool waits, uint64_t now_ns)
{
	if (!waits)
		RELAXED_STORE(self->entry->waits, 0);
	else if (!RELAXED_LOAD(self->entry->waits))
		RELAXED_STORE(self->entry->waits, now_ns);
}

void holder_release(const struct gang *gang, struct gang_member *self)
{
	uint32_t word = number_of(gang, self) | WANTED, nobody = 0;

	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with that of wait_for_holder */
	if (!RELAXED_CAS(gang->words->holder, word, nobody))
		return;
	RELAXED_STORE(self->waits_ns, 0);
	sys_futex_wake(&gang->words->holder, INT_MAX);
}

/* The holder of that number; NULL: none. */
static struct vgpu_region_member *holder_at(const struct gang *gang, uint32_t number)
{
	return number && number <= VGPU_GANG_MEMBERS_MAX ? gang_table_at(gang, number - 1) : NULL;
}

/* The time from which a member that has waited since waits_ns counts GANG_HOLD_SOFT_NS: the
 * holder's last look, or waits_ns if later. After GANG_HOLD_MOST_NS, waits_ns, so that the member
 * stops waiting. */
static uint64_t in_vain_since(const struct vgpu_region_member *holder, uint64_t waits_ns,
			      uint64_t now_ns)
{
	uint64_t seen_ns = RELAXED_LOAD(holder->seen);

	if (since(now_ns, waits_ns) >= GANG_HOLD_MOST_NS)
		return waits_ns;
	return seen_ns > waits_ns ? seen_ns : waits_ns;
}

/* Whether a member that has waited since waits_ns has to wait on for the holder with this number.
 */
static bool keeps(const struct gang *gang, uint32_t number, uint64_t waits_ns, uint64_t now_ns)
{
	struct vgpu_region_member *holder = holder_at(gang, number);

	return holder && gang_table_has_work(gang, holder, now_ns) &&
	       since(now_ns, in_vain_since(holder, waits_ns, now_ns)) < GANG_HOLD_SOFT_NS;
}

/* The member holds the device, and another one waits. */
static uint64_t ask_wanted(const struct gang *gang, struct gang_member *self, bool in_flight,
			   uint64_t now_ns)
{
	uint64_t waits_ns = RELAXED_LOAD(self->waits_ns);

	if (!in_flight && RELAXED_LOAD(self->entry->in_flight) == VGPU_MEMBER_CLAIMS) {
		RELAXED_STORE(self->holds_ns, now_ns); /* it waits for the slice's turn */
		return 0;
	}
	if (!in_flight) {
		holder_release(gang, self);
		return GANG_POLL_NS;
	}
	if (!waits_ns)
		RELAXED_STORE(self->waits_ns, waits_ns = now_ns);
	if (since(now_ns, waits_ns) < GANG_HOLD_SOFT_NS)
		return GANG_POLL_NS;
	holder_release(gang, self);
	return 0; /* its work is long, or waits for this launch */
}

/* Marks the word as wanted. Returns for how long the member waits until it asks again. */
static uint64_t wait_for_holder(const struct gang *gang, const struct gang_member *self,
				uint32_t word, uint64_t now_ns)
{
	if (!RELAXED_CAS(gang->words->holder, word, word | WANTED))
		return GANG_POLL_NS;
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with that of holder_release */
	return keeps(gang, word & ~WANTED, RELAXED_LOAD(self->waits_ns), now_ns) ? GANG_HOLD_NS
										 : GANG_POLL_NS;
}

/* Without work in flight, the member claims the device. Whether it has done so just now. */
static bool claims(struct vgpu_region_member *member, uint64_t now_ns)
{
	uint32_t nothing = 0;

	if (RELAXED_LOAD(member->in_flight))
		return false;
	RELAXED_STORE(member->seen, now_ns);
	if (!RELAXED_CAS(member->in_flight, nothing, VGPU_MEMBER_CLAIMS))
		return false;
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* a reader of the new holder sees the claim */
	return true;
}

/* False: another member is faster, or the former holder has launched meanwhile. */
static bool swap_holder(const struct gang *gang, const struct gang_member *self, uint32_t word,
			uint64_t now_ns)
{
	uint64_t waits_ns = RELAXED_LOAD(self->waits_ns);
	uint32_t number = number_of(gang, self);

	if (!RELAXED_CAS(gang->words->holder, word, number))
		return false;
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with that of holder_claim */
	if (!keeps(gang, word & ~WANTED, waits_ns, now_ns))
		return true;
	RELAXED_CAS(gang->words->holder, number, word | WANTED);
	return false;
}

/* The device is free, or the member no longer waits for the holder. The claim comes first: members
 * that wake together would else take the device from each other before the first has launched. */
static uint64_t take(const struct gang *gang, struct gang_member *self, uint32_t word,
		     uint64_t now_ns)
{
	uint32_t claim = VGPU_MEMBER_CLAIMS;
	bool claimed = claims(self->entry, now_ns);

	if (!swap_holder(gang, self, word, now_ns)) {
		if (claimed && holder_is_other(gang, self)) /* else another thread has taken it */
			RELAXED_CAS(self->entry->in_flight, claim, 0);
		return GANG_POLL_NS;
	}
	RELAXED_STORE(self->waits_ns, 0);
	RELAXED_STORE(self->free_ns, 0);
	RELAXED_STORE(self->holds_ns, now_ns);
	return 0;
}

/* Whether another member has waited for longer than this one. */
static bool is_another_first(const struct gang *gang, const struct gang_member *self)
{
	uint64_t own_ns = RELAXED_LOAD(self->entry->waits);
	struct vgpu_region_member *member;

	for (unsigned i = 0; (member = gang_table_next(gang, &i));) {
		uint64_t waits_ns = RELAXED_LOAD(member->waits);

		if (member != self->entry && waits_ns && (!own_ns || waits_ns < own_ns) &&
		    gang_table_is_taken(gang, member))
			return true;
	}
	return false;
}

/* Whether the member leaves the free device to one that has waited for longer and is about to wake.
 */
static bool leaves_it(const struct gang *gang, struct gang_member *self, uint64_t now_ns)
{
	uint64_t free_ns = RELAXED_LOAD(self->free_ns);

	if (free_ns && since(now_ns, free_ns) >= GANG_HOLD_GAVE_NS)
		return false;
	if (!is_another_first(gang, self))
		return false;
	if (!free_ns)
		RELAXED_STORE(self->free_ns, now_ns);
	return true;
}

static uint64_t ask(const struct gang *gang, struct gang_member *self, bool in_flight,
		    uint64_t now_ns)
{
	uint32_t number = number_of(gang, self), word = RELAXED_LOAD(gang->words->holder);

	if (word == (number | WANTED) &&
	    since(now_ns, RELAXED_LOAD(self->holds_ns)) >= GANG_HOLD_NS)
		return ask_wanted(gang, self, in_flight, now_ns);
	if ((word & ~WANTED) == number)
		return 0;
	if (!RELAXED_LOAD(self->waits_ns))
		RELAXED_STORE(self->waits_ns, now_ns);
	if (keeps(gang, word & ~WANTED, RELAXED_LOAD(self->waits_ns), now_ns)) {
		RELAXED_STORE(self->free_ns, 0);
		return wait_for_holder(gang, self, word, now_ns);
	}
	return leaves_it(gang, self, now_ns) ? GANG_POLL_NS : take(gang, self, word, now_ns);
}

uint64_t holder_ask(const struct gang *gang, struct gang_member *self, bool in_flight,
		    uint64_t now_ns)
{
	uint64_t wait_ns = ask(gang, self, in_flight, now_ns);

	holder_note_wait(self, wait_ns && !in_flight, now_ns);
	return wait_ns;
}

bool holder_claim(const struct gang *gang, struct gang_member *self, uint64_t now_ns)
{
	RELAXED_STORE(self->entry->seen, now_ns);
	RELAXED_STORE(self->entry->in_flight, VGPU_MEMBER_CLAIMS);
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with that of swap_holder */
	return !holder_is_other(gang, self);
}

void holder_unclaim(const struct gang *gang, struct gang_member *self, uint64_t now_ns)
{
	RELAXED_STORE(self->entry->seen, now_ns);
	RELAXED_STORE(self->entry->in_flight, 0);
	holder_release(gang, self);
}

void holder_sleep(const struct gang *gang, uint64_t wait_ns)
{
	uint32_t word = RELAXED_LOAD(gang->words->holder);

	if (word & WANTED)
		sys_futex_wait(&gang->words->holder, word, wait_ns);
	else
		sys_sleep_ns(wait_ns);
}
