#include "holder.h"

#include <limits.h>

#include "constants.h"
#include "gang_table.h"
#include "sys.h"
#include "words.h"

#define WANTED 0x80000000u /* in `holder`: another member waits */

static uint32_t number_of(const struct gang *gang, const struct gang_seat *seat)
{
	return 1 + (uint32_t)(seat->member - gang->table->member);
}

bool holder_is_other(const struct gang *gang, const struct gang_seat *seat)
{
	return gang->kind == GANG_OF_DEVICE &&
	       (LOAD(gang->words->holder) & ~WANTED) != number_of(gang, seat);
}

void holder_release(const struct gang *gang, struct gang_seat *seat, uint64_t now_ns)
{
	uint32_t word = number_of(gang, seat) | WANTED, nobody = 0;

	if (!SWAP(gang->words->holder, word, nobody))
		return;
	STORE(seat->waits_ns, 0);
	STORE(seat->gave_ns, now_ns);
	sys_futex_wake(&gang->words->holder, INT_MAX);
}

/* Whether the holder of that number keeps others waiting. */
static bool keeps(const struct gang *gang, uint32_t number, uint64_t now_ns)
{
	struct vgpu_region_member *member =
		number && number <= VGPU_GANG_MEMBERS_MAX ? gang_table_at(gang, number - 1) : NULL;

	return member && gang_table_is_in_flight(gang, member, now_ns);
}

uint64_t holder_ask(const struct gang *gang, struct gang_seat *seat, bool in_flight,
		    uint64_t now_ns)
{
	uint32_t self = number_of(gang, seat), word = LOAD(gang->words->holder);
	uint64_t waits_ns = LOAD(seat->waits_ns);

	if (word == (self | WANTED) && since(now_ns, LOAD(seat->holds_ns)) >= GANG_HOLD_NS) {
		if (!in_flight) {
			holder_release(gang, seat, now_ns);
			return GANG_POLL_NS;
		}
		if (!waits_ns)
			STORE(seat->waits_ns, waits_ns = now_ns);
		if (since(now_ns, waits_ns) < GANG_HOLD_SOFT_NS)
			return GANG_POLL_NS;
		STORE(seat->waits_ns, 0);
		STORE(seat->holds_ns, now_ns); /* whoever waited has gone */
		return 0;
	}
	if ((word & ~WANTED) == self)
		return 0;
	if (!waits_ns)
		STORE(seat->waits_ns, waits_ns = now_ns);
	if (keeps(gang, word & ~WANTED, now_ns) && since(now_ns, waits_ns) < GANG_HOLD_SOFT_NS) {
		SWAP(gang->words->holder, word, word | WANTED);
		return GANG_HOLD_NS;
	}
	if (!word && since(now_ns, LOAD(seat->gave_ns)) < GANG_HOLD_GAVE_NS)
		return GANG_POLL_NS; /* another member is about to take it */
	if (!SWAP(gang->words->holder, word, self))
		return GANG_POLL_NS;
	STORE(seat->waits_ns, 0);
	STORE(seat->holds_ns, now_ns);
	return 0;
}

void holder_sleep(const struct gang *gang, uint64_t wait_ns)
{
	uint32_t word = LOAD(gang->words->holder);

	if (word & WANTED)
		sys_futex_wait(&gang->words->holder, word, wait_ns);
	else
		sys_sleep_ns(wait_ns);
}
