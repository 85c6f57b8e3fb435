/*
 * A process alongside another slice, with a peer: another process of its own slice.
 *
 * A launch that waits while the other slice comes. From then on its slice takes turns, and the
 * peers that go by turns use up what the bucket gets. So the launch has to go by a turn as well:
 * whether it waits for the bucket or in its device's group, there is never enough in the bucket for
 * it.
 *
 * The other slice is a seat in the file of turns, and the peers are nothing but what they do to the
 * region.
 */
#include "bucket.h"
#include "cores.h"
#include "gang_turn.h"
#include "membership.h"
#include "pace_fake.h"
#include "turn.h"
#include "turns.h"

#define DEBT_NS   (300 * MS)      /* of the bucket, whatever the time */
#define COMES_NS  (20 * MS)       /* after the begin of the launch, the other slice comes */
#define ENOUGH_NS (20 * NS_PER_S) /* the debt is over after a second of turns */

static struct turn rival;
static struct turn_account rival_account;
static char turns_path[160];
static uint64_t began_ns; /* when the launches began that may have to wait */
static bool has_peer;     /* in the device's group */

int __wrap_sys_futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns);

int __wrap_sys_futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
	(void)word, (void)expected;
	pass(timeout_ns);
	if (meet)
		meet();
	return 0;
}

static void rival_comes(void)
{
	const struct turn_slice slice = {
		.key = 7, .weight = 60, .limit_pct = 100, .account = &rival_account};
	struct fault fault = {""};

	rival_account = (struct turn_account){.held_from = 0};
	assert_int_equal(turn_join(&rival, turns_path, &slice, &fault), 0);
}

static void peer_goes_on(void)
{
	struct vgpu_region_bucket *bucket = bucket_of(0);

	bucket->charged += bucket_level(bucket) + (int64_t)DEBT_NS;
	if (has_peer)
		region.file->group[0].launcher = 2 + (uint32_t)region.slot;
}

/* The peers keep the bucket in debt, and the other slice takes each turn that it gets. */
static void others_go_on(void)
{
	assert_true(time_ns - began_ns < ENOUGH_NS);
	peer_goes_on();
	if (time_ns - began_ns < COMES_NS)
		return;
	if (!rival.file.file)
		rival_comes();
	if (turn_ask(&rival, time_ns).kind == TURN_MINE)
		turn_submitted(&rival, time_ns + MS, time_ns);
}

static void launch_one(void)
{
	const struct kernel kernel = {.function = 7, .ns = 10 * NS_PER_US};

	assert_int_equal(launch(&kernel), 0);
}

/* After which time a launch has gone that waited when the other slice came. */
static uint64_t waits(bool with_peer)
{
	uint64_t waited_ns;

	pace_set_turns(here.dir, "");
	joined(30);
	snprintf(turns_path, sizeof(turns_path), "%s/%s", here.dir, hami->uuids[0]);
	has_peer = with_peer;
	for (unsigned i = 0; i < 3; i++) {
		region.file->group[0].launcher = has_peer ? 2 + (uint32_t)region.slot : 0;
		launch_one();
		synchronise_stream(0);
	}
	assert_int_equal(region.file->own.gang.member[0].owner != 0, has_peer);
	peer_goes_on();
	began_ns = time_ns;
	meet = others_go_on;
	do
		launch_one(); /* a group shuts when launches have gone at a debt */
	while (!rival.file.file);
	meet = NULL;
	waited_ns = time_ns - began_ns;
	turn_leave(&rival, time_ns);
	rival.file.file = NULL;
	left();
	pace_set_turns("", "");
	return waited_ns;
}

UNIT_TEST(test_in_the_bucket)
{
	assert_in_range(waits(false), COMES_NS, ENOUGH_NS);
}

UNIT_TEST(test_in_the_group)
{
	assert_in_range(waits(true), COMES_NS, ENOUGH_NS);
}

/* -- in the slice's turns --------------------------------------------------------------------- */

static struct vgpu_region_member *peer, *own;
static uint64_t peer_until_ns; /* the peer has the device */

/* The other slice wants nothing more after its first turn. */
static void rival_rests(void)
{
	turn_idle(&rival, time_ns, time_ns);
}

/* The process has a launch in flight, by the slice's turn. */
static void begin_turns(void)
{
	pace_set_turns(here.dir, "");
	joined(30);
	snprintf(turns_path, sizeof(turns_path), "%s/%s", here.dir, hami->uuids[0]);
	region.file->group[0].launcher = 2 + (uint32_t)region.slot;
	launch_one();
	own = &region.file->own.gang.member[0];
	assert_int_not_equal(own->owner, 0);
	synchronise_stream(0);
	peer = &region.file->own.gang.member[1]; /* which has nothing in flight yet */
	*peer = *own;
	region.file->own.gang.group.members = 2;
	region.file->group[0].shut_at = time_ns;
	rival_comes();
	assert_int_equal(turn_ask(&rival, time_ns).kind, TURN_WAIT);
	rival_rests();
	launch_one();
	assert_int_equal(own->in_flight, VGPU_MEMBER_CLAIMS);
	assert_int_equal(region.file->group[0].shut_at, 0); /* it throttles nobody meanwhile */
}

static void end_turns(void)
{
	meet = NULL;
	turn_leave(&rival, time_ns);
	rival.file.file = NULL;
	left();
	pace_set_turns("", "");
}

/* A process that has waited for its work keeps the device no longer. */
UNIT_TEST(test_rests_after_a_wait)
{
	begin_turns();
	synchronise_stream(0);
	assert_int_equal(own->in_flight, 0);
	end_turns();
}

static void peer_works(void)
{
	assert_true(time_ns < peer_until_ns + 20 * MS);
	if (time_ns < peer_until_ns) {
		peer->seen = time_ns - MS; /* never ahead of the time at which it is read */
		if (time_ns > began_ns + MS)
			assert_true(cores_meter_at(0)->turn->is_idle);
	} else {
		peer->in_flight = 0;
	}
}

/* While the peer has the device, the process waits, and wants no turn. */
UNIT_TEST(test_waits_for_the_peer)
{
	begin_turns();
	pass(20 * NS_PER_US); /* its work is over, and the pause is too short to be idle */
	peer->owner = 1u << VGPU_GANG_OWNER_SLOTS | 5;
	peer->in_flight = VGPU_MEMBER_CLAIMS;
	region.file->group[0].holder = 2;
	began_ns = time_ns;
	peer_until_ns = time_ns + 15 * MS;
	meet = peer_works;
	launch_one();
	assert_in_range(time_ns - began_ns, 15 * MS, 30 * MS);
	assert_int_equal(region.file->group[0].holder & ~(1u << 31), 1);
	end_turns();
}

static void clear_claim(void)
{
	own->in_flight = 0;
}

/* While the driver's call lasts, another thread sees the end of the work before. */
UNIT_TEST(test_keeps_what_it_launched)
{
	begin_turns();
	call_ns = 10 * MS;
	at_time(time_ns + 5 * MS, clear_claim);
	launch_one();
	call_ns = CALL_NS;
	assert_int_equal(own->in_flight, VGPU_MEMBER_CLAIMS);
	end_turns();
}

/* A process that doubts goes by its group, as if there were no turns. */
UNIT_TEST(test_doubts)
{
	begin_turns();
	turns_of(cores_meter_at(0), 0)->doubt_until = time_ns + NS_PER_S;
	launch_one();
	assert_int_equal(own->in_flight, VGPU_MEMBER_IN_FLIGHT);
	synchronise_stream(0);
	launch_one();
	assert_int_not_equal(own->ended, 0); /* it has not left the group meanwhile */
	end_turns();
}

/* Without a quota, there is no group after the turns. */
UNIT_TEST(test_without_a_quota)
{
	begin_turns();
	hami->sm_limit[0] = 0;
	turns_of(cores_meter_at(0), 0)->doubt_until = time_ns + NS_PER_S;
	pass(2 * MS);
	launch_one();
	assert_int_equal(own->owner, 0);
	end_turns();
}

static void launch_on(int device, uint64_t ns)
{
	const struct kernel kernel = kernel_on(device, ns);

	assert_int_equal(launch(&kernel), 0);
}

static void begin_gang(void)
{
	pace_set_turns(here.dir, "");
	pace_set_gang(PACE_GANG_YES);
	joined(30);
	snprintf(turns_path, sizeof(turns_path), "%s/%s", here.dir, hami->uuids[0]);
	launch_on(0, NS_PER_US);
	launch_on(1, NS_PER_US);
	rival_comes();
	turn_ask(&rival, time_ns);
	rival_rests();
}

/* A process that is in no gang any more may never launch to this device again. It wants no more
 * turns on it. */
static void leaves_its_gang(bool in_flight)
{
	struct turn *turn;

	begin_gang();
	launch_on(0, 5 * MS);
	turn = turns_of(cores_meter_at(0), 0);
	assert_int_not_equal(turn->closing_ns, 0);
	assert_false(turn->is_idle);
	if (!in_flight)
		pass(5 * MS);
	pace_set_gang(PACE_GANG_NO);
	launch_on(1, NS_PER_US);
	assert_int_equal(turn->closing_ns, 0);
	assert_true(turn->is_idle);
	pace_set_gang(PACE_GANG_FOUND);
	end_turns();
}

UNIT_TEST(test_leaves_its_gang)
{
	leaves_its_gang(false);
	leaves_its_gang(true);
}

/* How long a launch to the device takes while the other device's member waits for its turn. */
static uint64_t launch_beside_waiter(int device)
{
	uint64_t from_ns = time_ns;

	region.file->own.gang.member[!device].ready = (time_ns + 3 * MS) | VGPU_MEMBER_FOR_TURN;
	launch_on(device, NS_PER_US);
	return time_ns - from_ns;
}

/* While another member waits for its turn, no member of the gang begins to launch. */
static void waits_for_the_turn_beside(int device)
{
	begin_gang();
	region.file->own.gang.group.opened_at = time_ns - MS;
	assert_in_range(launch_beside_waiter(device), 3 * MS, 4 * MS);
	assert_in_range(launch_beside_waiter(device), 0, MS);
	pace_set_gang(PACE_GANG_FOUND);
	end_turns();
}

UNIT_TEST(test_waits_for_the_other_turn)
{
	waits_for_the_turn_beside(0);
}

/* The same for a launch to a device that no other slice uses. */
UNIT_TEST(test_waits_for_the_turn_of_another_device)
{
	waits_for_the_turn_beside(1);
}

/* A gang that goes without turns takes back its wish. */
UNIT_TEST(test_turnless_without_a_wish)
{
	const struct gang *gang;
	struct turn *turn;

	begin_gang();
	gang = membership_gang(0);
	turn = turns_of(cores_meter_at(0), 0);
	turn_wish(turn, time_ns + 10 * MS, false, time_ns);
	assert_true(turn_has_wish(turn));
	gang->table->turnless_until = time_ns + MS;
	assert_null(gang_turn_of(cores_meter_at(0), gang, 0));
	assert_false(turn_has_wish(turn));
	gang->table->turnless_until = 0;
	pace_set_gang(PACE_GANG_FOUND);
	end_turns();
}

/* A turn may be over at any moment, so a gang that takes turns has little in flight. */
UNIT_TEST(test_little_ahead_in_turns)
{
	const struct gang *gang;

	begin_gang();
	launch_on(0, NS_PER_US);
	gang = membership_gang(1);
	assert_int_equal(gang_ahead_most_ns(gang, BUCKET_FULL_NS, time_ns), GANG_AHEAD_LEAST_NS);
	pass(GANG_TURNED_NS);
	assert_int_equal(gang_ahead_most_ns(gang, BUCKET_FULL_NS, time_ns), GANG_AHEAD_NS);
	gang->table->turned_at = time_ns + 3600 * NS_PER_S; /* of another boot */
	assert_int_equal(gang_ahead_most_ns(gang, BUCKET_FULL_NS, time_ns), GANG_AHEAD_NS);
	pace_set_gang(PACE_GANG_FOUND);
	end_turns();
}

/* The slice of the rival is in this gang of several slices. They use one device, so the gang takes
 * no turns. */
UNIT_TEST(test_gang_of_slices_on_one_device)
{
	const struct meter *meter = cores_meter_at(0);
	struct gang_sight sight = {.ready_ns = 0};
	struct vgpu_region_member *other;
	struct vgpu_turns_header *header;
	uint64_t present;
	struct gang joint;
	struct turn *turn;

	begin_gang();
	header = &rival.file.file->header;
	turn = turns_of(meter, 0);
	joint = *membership_gang(0);
	joint.kind = GANG_OF_SLICES;
	joint.words->opened_at = time_ns;
	other = &joint.table->member[1];
	other->slice = 99; /* has no seat */
	assert_ptr_equal(gang_turn_of(meter, &joint, 0), turn);
	gang_turn_ask(turn, meter, &joint, membership_self(0), &sight, time_ns);
	assert_ptr_equal(gang_turn_of(meter, &joint, 0), turn);
	other->slice = rival.file.file->slice[rival.file.slice].key;
	joint.words->opened_at++;
	present = header->present;
	header->present = 0; /* the rival has wanted nothing for long */
	gang_turn_ask(turn, meter, &joint, membership_self(0), &sight, time_ns);
	assert_ptr_equal(gang_turn_of(meter, &joint, 0), turn);
	header->present = present;
	joint.words->opened_at++;
	assert_int_equal(gang_turn_ask(turn, meter, &joint, membership_self(0), &sight, time_ns),
			 0);
	assert_null(gang_turn_of(meter, &joint, 0));
	pass(GANG_TURNLESS_NS);
	assert_ptr_equal(gang_turn_of(meter, &joint, 0), turn);
	joint.table->turnless_until = 0;
	other->slice = 0;
	pace_set_gang(PACE_GANG_FOUND);
	end_turns();
}

/* A wait for the gang's date counts as one for a turn if it is the wait for this device's date. */
static void counts_as_wait(uint64_t date_ns)
{
	struct turn *turn = turns_of(cores_meter_at(0), 0);
	struct gang_member *self = membership_self(0);
	const struct gang *gang = membership_gang(0);
	uint64_t since_ns = time_ns - MS;

	gang->words->shut_at = since_ns;
	gang->words->cut = 1;
	self->dated_for = since_ns;
	turn->waits_from = since_ns;
	turn->asked_at = time_ns;
	rival.file.file->slice[turn->file.slice].wish_from = 0;
	self->date_ns = 0;
	gang_note_ready(gang, self, date_ns - time_ns, true, time_ns);
	gang_turn_wish(turn, gang, self, true, time_ns);
	assert_int_equal(turn->waits_from, 0);
	turn->waits_from = since_ns;
	self->date_ns = date_ns & ~VGPU_MEMBER_FOR_TURN;
	gang_turn_wish(turn, gang, self, true, time_ns);
	assert_int_equal(turn->waits_from, since_ns);
}

UNIT_TEST(test_wait_for_the_date_counts)
{
	begin_gang();
	counts_as_wait(time_ns + 10 * MS);
	counts_as_wait(time_ns + 10 * MS + 1);
	membership_gang(0)->words->shut_at = 0;
	pace_set_gang(PACE_GANG_FOUND);
	end_turns();
}

/* The gang has said until when it closes. It takes that back at the cut, and not before. */
UNIT_TEST(test_gives_way_at_the_cut)
{
	struct vgpu_region_group *words;
	struct turn *turn;
	uint64_t paid_ns;

	begin_gang();
	turn = turns_of(cores_meter_at(0), 0);
	words = membership_gang(0)->words;
	words->shut_at = time_ns;
	words->cut = 0;
	turn->told_until = time_ns + 2 * MS;
	gang_turn_wish(turn, membership_gang(0), membership_self(0), true, time_ns);
	gang_turn_is_idle(turn, membership_gang(0), time_ns, false, time_ns);
	assert_false(turn->is_idle);
	gang_turn_is_idle(turn, membership_gang(0), time_ns, true, time_ns);
	assert_true(turn->is_idle);
	assert_int_equal(turn->told_until, time_ns + 2 * MS);
	words->cut = 1;
	turn->account->held_from = 0;
	paid_ns = turn->account->paid_ns;
	pass(30 * MS); /* in which the host does something else: it does not pay for that */
	gang_turn_wish(turn, membership_gang(0), membership_self(0), true, time_ns);
	assert_int_equal(turn->told_until, 0);
	assert_int_equal(turn->account->paid_ns - paid_ns, -2 * (int64_t)MS);
	words->shut_at = 0;
	pace_set_gang(PACE_GANG_FOUND);
	end_turns();
}

/* In a shut gang, a member waits for its turn if a launch of it asked a moment ago, whichever
 * thread looks at the member. */
UNIT_TEST(test_another_thread_waits)
{
	struct gang_sight sight = {.ready_ns = 0};
	struct gang_member *self;
	struct turn *turn;

	begin_gang();
	self = membership_self(1);
	turn = turns_of(cores_meter_at(1), 1);
	membership_gang(1)->words->shut_at = time_ns;
	self->waits_at = time_ns;
	gang_turn_date(turn, cores_meter_at(1), membership_gang(1), self, &sight, time_ns);
	assert_true(sight.for_turn);
	pass(GANG_TURN_SEEN_NS);
	gang_turn_date(turn, cores_meter_at(1), membership_gang(1), self, &sight, time_ns);
	assert_false(sight.for_turn);
	membership_gang(1)->words->shut_at = 0;
	pace_set_gang(PACE_GANG_FOUND);
	end_turns();
}
