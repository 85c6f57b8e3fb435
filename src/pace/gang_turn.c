#include "gang_turn.h"

#include "clock.h"
#include "constants.h"
#include "cores.h"
#include "gang_table.h"
#include "gang_time.h"
#include "relaxed.h"
#include "trace.h"
#include "turns.h"

#define ALL_PERCENT 100

/* Whether the gang goes without turns for a while, as they were not worth it. */
static bool is_turnless(const struct gang *gang)
{
	uint64_t until_ns = RELAXED_LOAD(gang->table->turnless_until);

	return until_ns && until_ns - clock_steady_ns() <= GANG_TURNLESS_NS;
}

/* The process's part in the turns of the device; NULL: there are none for the gang. */
static struct turn *file_of(const struct meter *meter, const struct gang *gang, int device)
{
	return gang && gang->kind != GANG_OF_DEVICE ? turns_of(meter, device) : NULL;
}

struct turn *gang_turn_of(const struct meter *meter, const struct gang *gang, int device)
{
	struct turn *turn = file_of(meter, gang, device);

	if (!turn || !is_turnless(gang))
		return turn;
	if (!RELAXED_LOAD(turn->is_idle) || turn_has_wish(turn)) /* others have the device */
		turn_wish(turn, 0, false, clock_steady_ns());
	return NULL;
}

/* The gang takes no turns for a while. */
static void go_turnless(const struct gang *gang, uint64_t now_ns)
{
	RELAXED_STORE(gang->table->turnless_until, now_ns + GANG_TURNLESS_NS);
}

/* Whether another slice of the gang uses the device. The kernels of both may wait for each other,
 * so neither slice can wait for a turn. Members of a slice's own gang have 0 in `slice`. */
static bool is_shared(const struct turn *turn, const struct gang *gang)
{
	const struct vgpu_region_member *member;

	for (unsigned i = 0; (member = gang_table_next(gang, &i));) {
		uint64_t slice = RELAXED_LOAD(member->slice);

		if (slice && slice != gang->slice && turn_has_slice(turn, slice))
			return true;
	}
	return false;
}

/* -- whether turns are worth it --------------------------------------------------------------- */

static void begin_use(const struct gang *gang, struct gang_member *self, uint64_t now_ns)
{
	RELAXED_STORE(self->turn_from_ns, now_ns);
	RELAXED_STORE(self->turn_paid_ns, gang_paid_ns(gang, self));
}

/* At the cut: the device has paid for all of its work. */
static void end_use(const struct gang *gang, struct gang_member *self, uint64_t now_ns)
{
	uint64_t from_ns = RELAXED_LOAD(self->turn_from_ns);
	uint64_t all_ns = RELAXED_LOAD(self->turn_ns) + since(now_ns, from_ns);
	int64_t used_ns = RELAXED_LOAD(self->turn_used_ns) + gang_paid_ns(gang, self) -
			  RELAXED_LOAD(self->turn_paid_ns);
	uint32_t count = RELAXED_LOAD(self->turn_count) + 1;

	RELAXED_STORE(self->turn_from_ns, 0);
	if (!from_ns || RELAXED_LOAD(self->turn_in) != RELAXED_LOAD(gang->words->opened_at))
		return; /* the device was the gang's alone since */
	if (count == GANG_TURN_USES &&
	    used_ns * ALL_PERCENT < (int64_t)all_ns * GANG_TURN_USE_PCT) {
		trace_write(TRACE_GANG_TURNLESS, (int)self->device, used_ns, (int64_t)all_ns);
		go_turnless(gang, now_ns);
	}
	if (count == GANG_TURN_USES)
		all_ns = 0, used_ns = 0, count = 0;
	RELAXED_STORE(self->turn_ns, all_ns);
	RELAXED_STORE(self->turn_used_ns, used_ns);
	RELAXED_STORE(self->turn_count, count);
}

/* -- asking ----------------------------------------------------------------------------------- */

bool gang_turn_has_begun(const struct gang *gang, const struct gang_member *self)
{
	return gang->kind == GANG_OF_DEVICE ||
	       RELAXED_LOAD(self->turn_in) == RELAXED_LOAD(gang->words->opened_at);
}

bool gang_turn_begin_alone(const struct gang *gang, struct gang_member *self, uint64_t now_ns)
{
	uint64_t opened_ns = RELAXED_LOAD(gang->words->opened_at);

	if (gang_turn_has_begun(gang, self))
		return true;
	if (gang_waits_for_turn(gang, self, now_ns))
		return false;
	RELAXED_STORE(self->turn_from_ns, 0); /* the device is the gang's alone */
	RELAXED_STORE(self->turn_in, opened_ns);
	return true;
}

bool gang_turn_goes_on(const struct turn *turn, const struct gang *gang,
		       const struct gang_member *self, uint64_t now_ns)
{
	return turn_has_word(turn) && !RELAXED_LOAD(turn->is_idle) &&
	       gang_turn_has_begun(gang, self) &&
	       since(now_ns, RELAXED_LOAD(self->turn_asked)) < GANG_TURN_EACH_NS;
}

/* The device has its turn, and so has each device of the gang for which a launch waits. */
static void begin_turn(const struct gang *gang, struct gang_member *self, enum turn_kind kind,
		       uint64_t opened_ns, uint64_t now_ns)
{
	trace_write(TRACE_GANG_TURN, (int)self->device, (int64_t)since(now_ns, opened_ns), 0);
	if (kind == TURN_MINE)
		begin_use(gang, self, now_ns);
	else
		RELAXED_STORE(self->turn_from_ns, 0);
	RELAXED_STORE(self->turn_in, opened_ns);
}

/* The gang is open. A turn that the device had since it opened is over as soon as another slice has
 * the word, and one that does not begin, after GANG_TURN_LATE_NS. Until all have begun, no member
 * launches: its kernels would wait for those of the others. */
static uint64_t ask_open(struct turn *turn, const struct gang *gang, struct gang_member *self,
			 struct gang_sight *sight, uint64_t now_ns)
{
	uint64_t opened_ns = RELAXED_LOAD(gang->words->opened_at);
	struct turn_answer answer = turn_ask(turn, now_ns);
	bool waits = answer.kind == TURN_WAIT, had = RELAXED_LOAD(self->turn_in) == opened_ns;

	/* If another member shuts the gang now, the gang does not open before this one has
	 * published its date. */
	sight->for_turn = true;
	if (sight->ready_ns < GANG_TURN_POLL_NS)
		sight->ready_ns = GANG_TURN_POLL_NS;
	if (!had)
		gang_note_ready(gang, self, waits ? GANG_TURN_LATE_NS : 0, waits, now_ns);
	if (!waits && !had && !gang_waits_for_turn(gang, self, now_ns)) {
		begin_turn(gang, self, answer.kind, opened_ns, now_ns);
		had = true;
	}
	if (!waits && had) {
		RELAXED_STORE(self->turn_asked, now_ns);
		RELAXED_STORE(self->asked_ns, 0);
		return 0;
	}
	if (RELAXED_LOAD(self->asked_ns) < opened_ns) /* it asks for the first time */
		RELAXED_STORE(self->asked_ns, now_ns);
	sight->is_over = !turn_has_word(turn) &&
			 (had || since(now_ns, RELAXED_LOAD(self->asked_ns)) >= GANG_TURN_LATE_NS);
	if (sight->is_over) {
		trace_write(TRACE_GANG_TURN_OVER, (int)self->device,
			    (int64_t)since(now_ns, opened_ns), had);
		RELAXED_STORE(self->asked_ns, 0);
		turn_give_way(turn, now_ns);
	}
	return answer.wait_ns && answer.wait_ns < GANG_TURN_POLL_NS ? answer.wait_ns
								    : GANG_TURN_POLL_NS;
}

/* The gang is closing or shut since shut_at, and the member has no work in flight: notes when its
 * device could be the slice's. That time comes sooner if others become idle. It comes later only if
 * the word is the slice's already, and so shows when the device will be free. */
static void note_date(const struct turn *turn, const struct gang *gang, struct gang_member *self,
		      uint64_t shut_at, uint64_t date_ns, uint64_t now_ns)
{
	bool is_first = RELAXED_LOAD(self->dated_for) != shut_at;

	if (!is_first && !turn_has_word(turn) && date_ns >= RELAXED_LOAD(self->date_ns))
		return;
	if (is_first) {
		end_use(gang, self, now_ns);
		trace_write(TRACE_GANG_DATE, (int)self->device, (int64_t)since(date_ns, now_ns),
			    turn_has_word(turn));
	}
	RELAXED_STORE(self->asked_ns, 0);
	RELAXED_STORE(self->dated_for, shut_at);
	RELAXED_STORE(self->date_ns, date_ns & ~VGPU_MEMBER_FOR_TURN); /* as in `ready` */
}

static void set_closing(const struct meter *meter, struct turn *turn, const struct gang *gang)
{
	uint64_t closing_ns = RELAXED_LOAD(gang->words->closing_ns);

	if (closing_ns < GANG_TURN_CLOSING_NS)
		closing_ns = GANG_TURN_CLOSING_NS;
	turns_set(meter, turn, ALL_PERCENT, closing_ns); /* the gang's buckets enforce the limit */
}

void gang_turn_date(struct turn *turn, const struct meter *meter, const struct gang *gang,
		    struct gang_member *self, struct gang_sight *sight, uint64_t now_ns)
{
	uint64_t shut_at = RELAXED_LOAD(gang->words->shut_at);

	set_closing(meter, turn, gang);
	if (!shut_at || sight->in_flight)
		return;
	note_date(turn, gang, self, shut_at, turn_date(turn, now_ns), now_ns);
	sight->for_turn = since(now_ns, RELAXED_LOAD(self->waits_at)) < GANG_TURN_SEEN_NS;
	if (RELAXED_LOAD(self->date_ns) > now_ns + sight->ready_ns)
		sight->ready_ns = RELAXED_LOAD(self->date_ns) - now_ns;
}

uint64_t gang_turn_ask(struct turn *turn, const struct meter *meter, const struct gang *gang,
		       struct gang_member *self, struct gang_sight *sight, uint64_t now_ns)
{
	RELAXED_STORE(self->waits_at, now_ns);
	RELAXED_STORE(gang->table->turned_at, now_ns);
	if (!gang_is_open(gang)) {
		gang_turn_date(turn, meter, gang, self, sight, now_ns);
		return 0;
	}
	if (!gang_turn_has_begun(gang, self) && is_shared(turn, gang)) {
		trace_write(TRACE_GANG_SHARES, (int)self->device, 0, 0);
		go_turnless(gang, now_ns);
		return 0;
	}
	set_closing(meter, turn, gang);
	return ask_open(turn, gang, self, sight, now_ns);
}

/* When the shut gang came to the cut: at the end of its last work, or when it shut. */
static uint64_t cut_ns(const struct gang *gang, uint64_t now_ns)
{
	uint64_t last_ns = RELAXED_LOAD(gang->words->shut_at);
	const struct vgpu_region_member *member;

	for (unsigned i = 0; (member = gang_table_next(gang, &i));)
		if (RELAXED_LOAD(member->ended) > last_ns)
			last_ns = RELAXED_LOAD(member->ended);
	return last_ns < now_ns ? last_ns : now_ns;
}

void gang_turn_wish(struct turn *turn, const struct gang *gang, const struct gang_member *self,
		    bool waits, uint64_t now_ns)
{
	uint64_t date_ns = gang_date_ns(gang, now_ns);

	if (gang_is_open(gang) || !RELAXED_LOAD(gang->words->cut))
		return;
	turn_over(turn, cut_ns(gang, now_ns), now_ns); /* the announced end was an estimate */
	if (date_ns > now_ns)
		turn_wish(turn, date_ns, waits && RELAXED_LOAD(self->date_ns) == date_ns, now_ns);
}

void gang_turn_leave(const struct meter *meter, const struct gang *gang, int device,
		     uint64_t now_ns)
{
	struct turn *turn = file_of(meter, gang, device);

	if (!turn)
		return;
	turn_set_gang(turn, 0);
	turn_give_way(turn, now_ns);
}

void gang_turn_is_busy(struct turn *turn, uint64_t ahead_ns, uint64_t now_ns)
{
	if (gang_turn_is_due(turn) && turn_has_word(turn))
		turn_submitted(turn, now_ns + ahead_ns, now_ns);
}

void gang_turn_is_idle(struct turn *turn, const struct gang *gang, uint64_t ended_ns, bool waited,
		       uint64_t now_ns)
{
	bool is_open = gang_is_open(gang); /* else the cut, which is yet to come, ends the turn */

	if (!gang_turn_is_due(turn))
		return;
	if (waited && is_open)
		turn_idle(turn, ended_ns, now_ns);
	else if (waited)
		turn_give_way(turn, now_ns);
	else if (is_open)
		turn_over(turn, ended_ns, now_ns);
}
