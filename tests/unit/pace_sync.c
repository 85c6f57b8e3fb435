/* Waits, questions whether something is over, and copies: what lies between two of them is measured
 * as what it is, whatever its lengths, and in relaxed mode, too. */
#include "pace_fake.h"

#define NAME         1 /* of one kernel, which takes as long as its arguments say */
#define EVENT_NS     600
#define WAKE_NS      5000 /* the host is back so long after what it waited for */
#define QUESTION_NS  500
#define PAUSE_EACH   100
#define LONG_PAUSE   (300 * MS)
#define IN_FLIGHT    8
#define BANDWIDTH_NS 23 /* for a KiB from or to the host */

enum wait {
	FOR_STREAM,
	FOR_EVENT,     /* behind all that there is */
	FOR_EARLIER,   /* the event behind the round before */
	FOR_LONG_GONE, /* or behind one that is IN_FLIGHT rounds ago */
	BY_COPY,       /* to memory that is not page-locked, and then for the stream */
	BY_QUESTIONS,
	BY_QUESTIONS_EARLIER,
};

/* What goes on and on: so many short ones, a copy, so many long ones, a copy, and a wait. */
struct round {
	unsigned shorts, longs;
	uint64_t short_ns, long_ns;
	unsigned before_kib, behind_kib; /* copies before the long ones, and behind them */
	uint64_t host_ns;                /* that the host takes at its begin */
	bool waits_between;              /* for the stream, there */
	bool waits_each;                 /* and behind each of the short ones */
	bool pauses;
	unsigned streams; /* more than one: in turns */
	unsigned each;    /* so many such rounds to a wait */
	uint64_t call_ns; /* what the driver takes for a launch, if not CALL_NS, and */
	uint64_t slow_ns; /* how much more for the first behind a wait */
	enum wait wait;
};

static struct fake_stream *stream;
static uint64_t done_ns[IN_FLIGHT];

static void go_in_turns(unsigned streams, unsigned count, uint64_t ns)
{
	struct kernel kernel = {.function = NAME, .ns = ns};
	static unsigned turn;

	while (count--) {
		kernel.stream = streams ? turn++ % streams : 0;
		assert_int_equal(launch(&kernel), 0);
	}
}

static void go(unsigned count, uint64_t ns)
{
	go_in_turns(1, count, ns);
}

static void copy(unsigned kib)
{
	const struct pace_work work = {.context = &context_a, .stream = stream};

	if (!kib)
		return;
	pace_will_copy(&work, (uint64_t)kib << 10);
	pass(CALL_NS);
	stream->done_ns =
		(stream->done_ns > time_ns ? stream->done_ns : time_ns) + kib * BANDWIDTH_NS;
}

static void wait_for(uint64_t ns, bool of_all)
{
	if (!of_all && ns <= time_ns && pace_has_waited()) { /* as the hook does */
		pace_found_over();
		pass(WAKE_NS);
		return;
	}
	pace_will_wait(&context_a, of_all);
	wait_until(ns);
	pass(WAKE_NS);
}

static void ask_until(uint64_t ns)
{
	for (;;) {
		pass(QUESTION_NS);
		if (ns <= time_ns)
			return;
		pace_will_wait(&context_a, false);
		pace_found_busy();
	}
}

static void end_round(enum wait wait, unsigned n)
{
	uint64_t *last = &done_ns[n % IN_FLIGHT],
		 *before = &done_ns[(n + IN_FLIGHT - 1) % IN_FLIGHT];
	uint64_t *first = &done_ns[(n + 1) % IN_FLIGHT];

	if (wait != FOR_STREAM)
		pass(EVENT_NS);
	*last = fake.done_ns[0];
	switch (wait) {
	case FOR_STREAM:
		wait_for(fake.done_ns[0], true);
		break;
	case FOR_EVENT:
		wait_for(*last, false);
		break;
	case FOR_EARLIER:
		wait_for(*before, false);
		break;
	case FOR_LONG_GONE:
		wait_for(*first, false);
		break;
	case BY_COPY:
		wait_for(fake.done_ns[0], false);
		wait_for(fake.done_ns[0], true);
		break;
	case BY_QUESTIONS:
		ask_until(*last);
		break;
	case BY_QUESTIONS_EARLIER:
		ask_until(*before);
		break;
	}
}

static void do_round(const struct round *round, unsigned n)
{
	pass(round->host_ns);
	for (unsigned i = 0; i < round->shorts; i++) {
		go_in_turns(round->streams, 1, round->short_ns);
		if (round->waits_each && round->wait == BY_QUESTIONS)
			ask_until(fake.done_ns[0]);
		else if (round->waits_each)
			wait_for(fake.done_ns[0], true);
	}
	if (round->waits_between)
		wait_for(stream->done_ns, true);
	copy(round->before_kib);
	go_in_turns(round->streams, round->longs, round->long_ns);
	copy(round->behind_kib);
	if (!round->each || n % round->each == 0)
		end_round(round->wait, n);
	if (round->pauses && n % PAUSE_EACH == 0)
		pass(LONG_PAUSE);
}

/* What it gets in 4 seconds, the first aside; and what of that it was charged. */
static double play(const struct round *round, unsigned quota, double *ret_charged)
{
	struct run run;
	double share;

	joined(quota);
	stream = &fake.streams[0][0];
	fake.record_ns = 700;
	fake.slow_ns = round->slow_ns;
	call_ns = round->call_ns ? round->call_ns : CALL_NS;
	memset(done_ns, 0, sizeof(done_ns));
	run_begin(&run, 5, 4);
	for (unsigned n = 0; goes_on(&run); n++) {
		do_round(round, n);
	}
	share = share_since(&run.then);
	*ret_charged = 100 * charged_since(&run.then);
	harness_note("%u x %.0f us, %u x %.0f us, wait %d: %.2f of %u, charged %.1f", round->shorts,
		     (double)round->short_ns / 1e3, round->longs, (double)round->long_ns / 1e3,
		     round->wait, share, quota, *ret_charged);
	call_ns = CALL_NS;
	left();
	return share;
}

#define MUCH_UNLIKE .shorts = 20, .short_ns = 20000, .longs = 1, .long_ns = 3800000
#define UNLIKE      .shorts = 5, .short_ns = 20000, .longs = 1, .long_ns = 300000
#define BRIEF       .shorts = 2, .short_ns = 20000, .longs = 1, .long_ns = 100000
#define MANY_SHORT  .shorts = 60, .short_ns = 4000, .longs = 1, .long_ns = 3800000

/* Each with a quota of 30 and of 80. */
static const struct row {
	const char *name;
	struct round round;
	bool is_charged; /* it does not always use its quota, and is charged what it takes */
} rows[] = {
	/* clang-format off */
	{"stream, much unlike", {MUCH_UNLIKE}, false},
	{"stream, unlike", {UNLIKE}, false},
	{"stream, brief", {BRIEF}, false},

	/* A wait for an event says nothing of what comes after it. */
	{"event, much unlike", {MUCH_UNLIKE, .wait = FOR_EVENT}, false},
	{"event, unlike", {UNLIKE, .wait = FOR_EVENT}, false},
	{"event, brief", {BRIEF, .wait = FOR_EVENT}, false},
	{"event, many short", {MANY_SHORT, .waits_between = true, .wait = FOR_EVENT}, false},

	/* As where the host has slept: for how long the device waits, costs say. */
	{"slow calls, much unlike", {MUCH_UNLIKE, .slow_ns = 40000, .wait = FOR_EVENT}, false},
	{"slow calls, unlike", {UNLIKE, .slow_ns = 40000, .wait = FOR_EVENT}, false},

	/* Costs lean to those that are short, and say that the device is idle where it is not. */
	{"slow calls, two rounds to a wait",
	 {.shorts = 20, .short_ns = 3000, .longs = 2, .long_ns = 1300000, .call_ns = 6900, .each = 2,
	  .wait = FOR_EVENT}, true},
	{"slow calls, four rounds to a wait",
	 {.shorts = 32, .short_ns = 2000, .longs = 1, .long_ns = 2 * MS, .call_ns = 7500, .each = 4,
	  .wait = FOR_EVENT}, true},
	{"slow calls, three rounds to a wait",
	 {.shorts = 18, .short_ns = 4000, .longs = 1, .long_ns = 913000, .call_ns = 3900,
	  .slow_ns = 30000, .each = 3, .wait = FOR_EVENT}, true},

	{"copies, much unlike", {MUCH_UNLIKE, .wait = BY_COPY}, false},
	{"copies, unlike", {UNLIKE, .wait = BY_COPY}, false},
	{"asks, much unlike", {MUCH_UNLIKE, .wait = BY_QUESTIONS}, false},
	{"asks, unlike", {UNLIKE, .wait = BY_QUESTIONS}, false},

	/* There is always something on its way. */
	{"earlier event, much unlike", {MUCH_UNLIKE, .wait = FOR_EARLIER}, false},
	{"earlier event, unlike", {UNLIKE, .wait = FOR_EARLIER}, false},
	{"event that is long gone", {UNLIKE, .wait = FOR_LONG_GONE}, false},
	{"asks for an earlier event", {MUCH_UNLIKE, .wait = BY_QUESTIONS_EARLIER}, false},

	/* Fences come after the work of all streams. */
	{"streams in turns, much unlike", {MUCH_UNLIKE, .streams = 2, .wait = FOR_EVENT}, false},
	{"streams in turns, unlike", {UNLIKE, .streams = 2, .wait = FOR_EVENT}, false},
	{"three streams in turns", {UNLIKE, .streams = 3}, false},
	{"streams in turns, long gone", {UNLIKE, .streams = 2, .wait = FOR_LONG_GONE}, false},
	{"streams in turns, pauses",
	 {MUCH_UNLIKE, .streams = 2, .pauses = true, .wait = FOR_EVENT}, true},

	/* The device is idle for a quarter of the time and more, of the host's accord. */
	{"idle between events", {UNLIKE, .wait = FOR_EVENT, .host_ns = 100000}, true},
	{"idle between", {UNLIKE, .host_ns = 300000}, true},
	{"long idle between", {MUCH_UNLIKE, .wait = FOR_EVENT, .host_ns = 3 * MS}, true},

	/* In relaxed mode, it is looked at more seldom, and not always at the same place. */
	{"pauses, much unlike", {MUCH_UNLIKE, .pauses = true}, true},
	{"pauses and events, much unlike",
	 {MUCH_UNLIKE, .pauses = true, .wait = FOR_EVENT}, true},
	{"pauses and events, unlike", {UNLIKE, .pauses = true, .wait = FOR_EVENT}, true},
	{"pauses and events, brief", {BRIEF, .pauses = true, .wait = FOR_EVENT}, true},
	{"pauses and events, many short",
	 {MANY_SHORT, .pauses = true, .waits_between = true, .wait = FOR_EVENT}, true},

	/* More waits than spans. */
	{"16 waits", {.shorts = 16, .short_ns = 20000, .longs = 1, .long_ns = 3800000,
	 .waits_each = true}, true},
	{"50 waits", {.shorts = 50, .short_ns = 20000, .longs = 1, .long_ns = 1500000,
	 .waits_each = true}, true},
	{"30 waits, pauses", {.shorts = 30, .short_ns = 20000, .longs = 1, .long_ns = 3800000,
	 .waits_each = true, .pauses = true}, true},
	{"16 waits, asks", {.shorts = 16, .short_ns = 20000, .longs = 1, .long_ns = 3800000,
	 .waits_each = true, .wait = BY_QUESTIONS}, true},
	{"30 waits, pauses, asks", {.shorts = 30, .short_ns = 20000, .longs = 1, .long_ns = 3800000,
	 .waits_each = true, .pauses = true, .wait = BY_QUESTIONS}, true},

	/* Host copies are not charged, and kernels are, however many copies there are. */
	{"copies after kernels",
	 {.longs = 10, .long_ns = 20000, .behind_kib = 5 << 10, .wait = FOR_STREAM}, true},
	{"copies after kernels, events",
	 {.longs = 10, .long_ns = 20000, .behind_kib = 5 << 10, .wait = FOR_EVENT}, true},
	{"copies before kernels",
	 {.longs = 10, .long_ns = 20000, .before_kib = 1 << 10, .wait = FOR_EVENT}, true},
	{"copies before and after",
	 {.shorts = 5, .short_ns = 20000, .longs = 5, .long_ns = 20000, .before_kib = 1 << 10,
	  .behind_kib = 1 << 10, .wait = FOR_STREAM}, true},
	/* clang-format on */
};

UNIT_ROWS(rows)
{
	static const unsigned quotas[] = {30, 80};

	for (unsigned i = 0; i < 2; i++) {
		double charged, share = play(&row->round, quotas[i], &charged);

		if (row->is_charged)
			assert_share("charged", charged, 100, 4, 4);
		else
			assert_share("share", share, quotas[i], 1.5, 1);
	}
}

/* A round of a millisecond with WAITS of them: behind which of them windows begin in a second. */
#define WAITS 4

static unsigned count_begun(unsigned ret_behind[WAITS])
{
	unsigned count = 0;

	memset(ret_behind, 0, WAITS * sizeof(*ret_behind));
	for (unsigned n = 0; n < 1000; n++) {
		uint64_t round_ns = time_ns + (uint64_t)MS;

		for (unsigned i = 0; i < WAITS; i++) {
			uint64_t before = fake.records;

			go(1, 100000); /* which asks */
			ret_behind[i] += fake.records > before;
			count += fake.records > before;
			wait_for(stream->done_ns, true);
		}
		assert_true(time_ns < round_ns);
		pass(round_ns - time_ns);
	}
	return count;
}

/* In relaxed mode that is once in a millisecond in the mean, and behind each at times, mostly where
 * time has gone by. */
UNIT_TEST(test_waits_relaxed)
{
	unsigned behind[WAITS];

	joined(99);
	stream = &fake.streams[0][0];
	for (unsigned second = 0; second < 3; second++) {
		unsigned count = count_begun(behind);

		harness_note("begun: %u, behind each %u %u %u %u", count, behind[0], behind[1],
			     behind[2], behind[3]);
		if (second > 0)
			assert_in_range(count, 500, 1100);
		for (unsigned k = 0; second > 0 && k < WAITS; k++)
			assert_true(behind[k] > count / 32);
	}
}

static void play_many_copies(unsigned quota, unsigned kib)
{
	struct run run;
	uint64_t before_ns[2] = {0, 0};

	joined(quota);
	stream = &fake.streams[0][0];
	fake.record_ns = 700;
	run_begin(&run, 5, 4);
	for (unsigned n = 0; goes_on(&run); n++) {
		wait_for(before_ns[n % 2], false);
		for (unsigned k = 0; k < 17; k++) {
			go(1, 4000);
			copy(kib);
		}
		go(60, 4000);
		go(4, MS);
		before_ns[n % 2] = stream->done_ns;
	}
	harness_note("copies of %u KiB: %.2f of %u, charged %.1f", kib, share_since(&run.then),
		     quota, 100 * charged_since(&run.then));
	assert_share("many copies", share_since(&run.then), quota, 4, 1);
	left();
}

/* More than there are spans, with long ones behind them. */
UNIT_TEST(test_many_copies)
{
	play_many_copies(10, 64);
	play_many_copies(80, 64);
	play_many_copies(10, 1 << 10);
	play_many_copies(80, 1 << 10);
}

/* It was long for a while, and is short: costs have it that the device is at work yet. */
UNIT_TEST(test_costs_too_high)
{
	static const struct round rounds[] = {
		{.longs = 3, .long_ns = 300000},
		{.longs = 3, .long_ns = 20000},
	};
	struct run run;

	joined(30);
	stream = &fake.streams[0][0];
	fake.record_ns = 700;
	run_begin(&run, 5, 4);
	for (unsigned n = 0; goes_on(&run); n++) {
		do_round(&rounds[n / 20 % 2], n);
	}
	harness_note("too high: %.2f, charged %.1f", share_since(&run.then),
		     100 * charged_since(&run.then));
	assert_share("costs too high", 100 * charged_since(&run.then), 100, 0.5, 0.5);
}

/* -- what is not touched ---------------------------------------------------------------------- */

static uint64_t calls_of_wait(void *context)
{
	uint64_t before = fake.calls;

	pace_will_wait(context, true);
	return fake.calls - before;
}

/* A stream that may be gone; but one that the thread has launched to since. */
UNIT_TEST(test_ended_streams)
{
	joined(30);
	stream = &fake.streams[0][0];
	go(5000, 20000);
	calls_of_wait(&context_a);
	go(20, 20000); /* which is less than a window is of */
	assert_true(calls_of_wait(&context_a) > 0);
	go(20, 20000);
	pace_end_streams();
	assert_int_equal(calls_of_wait(&context_a), 0);
	go(20, 20000);
	assert_true(calls_of_wait(&context_a) > 0);
}

static void go_to_default(unsigned count, uint64_t ns)
{
	const struct pace_work work = {
		.context = &context_a,
		.what = {.function = NAME, .shape = 1, .blocks = 1},
	};

	while (count--) {
		struct pace_pass pace;

		assert_int_equal(pace_enter(&pace, &work), 0);
		pass(CALL_NS);
		submit(0, &fake.streams[0][0], ns);
		pace_leave(&pace, &work, true);
	}
}

/* The default stream, while the thread is in another context: it would be that one's. */
UNIT_TEST(test_other_context)
{
	joined(30);
	go_to_default(5000, 20000);
	assert_int_equal(calls_of_wait(&context_b), 0);
	assert_true(calls_of_wait(&context_a) > 0);
}

/* As programs do that wait for half of what they have under way, and then look at each event of
 * it: those waits are for nothing that could leave the device idle, whatever costs say. Streams
 * take turns, and one function takes now a little and now long, so that costs are too low by far.
 */
UNIT_TEST(test_half)
{
	static const uint64_t long_ns[] = {200000, 1000000, 5000000};

	for (unsigned i = 0; i < 6; i++) {
		uint64_t done[16], began_ns, chance = 7;

		joined(30);
		fake.concurrent = i % 2 != 0;
		began_ns = time_ns;
		for (unsigned n = 1; time_ns - began_ns < 4 * NS_PER_S; n++) {
			struct kernel kernel = {.function = 1, .stream = n % 2};

			chance = chance_after(chance);
			kernel.ns = chance >> 63 ? long_ns[i / 2] : 20000;
			assert_int_equal(launch(&kernel), 0);
			done[n % 16] = fake.streams[0][n % 2].done_ns;
			for (unsigned j = 0; n >= 16 && n % 8 == 0 && j < 8; j++)
				wait_for(done[(n + 8) % 16], false);
		}
		synchronise(0);
		assert_share("half", 100.0 * (double)fake.busy_ns[0] / (double)(time_ns - began_ns),
			     30, 1.5, 1.5);
		left();
	}
}

/* As programs do that the host holds up: it looks at many events one by one, all over by then. What
 * time it takes is not the device's, and whether that is idle is asked once. */
static uint64_t calls_of_looks(unsigned quota)
{
	uint64_t calls = 0;

	joined(quota);
	for (unsigned n = 0; n < 1000; n++) {
		uint64_t before = fake.calls;

		for (unsigned i = 0; i < 128; i++) {
			go(1, 2000);
			pass(2000);
		}
		for (unsigned i = 0; i < 128; i++) {
			pass(2000);
			if (pace_has_waited()) {
				pace_found_over();
				continue;
			}
			pace_will_wait(&context_a, false);
			pace_waited();
		}
		calls += n < 500 ? 0 : fake.calls - before;
	}
	left();
	return calls / 500;
}

/* The process is at work until it has seen that the last of its work is over, be it by a look after
 * a wait for something else. */
UNIT_TEST(test_look_at_the_last)
{
	const uint64_t *shown;
	uint64_t first_ns;

	joined(50);
	shown = &hami->slots[region.slot].device_util[0].sm;
	assert_false(pace_has_waited());
	while (!*shown) {
		synchronise_stream(0);
		pass(100 * MS); /* the bucket is full */
		go(5, 600000);  /* each is too long for a lease */
	}
	first_ns = time_ns + 100000;
	assert_false(pace_has_waited());
	wait_for(first_ns, false);
	assert_true(*shown > 0);
	assert_true(pace_has_waited());
	pace_found_over(); /* another one */
	assert_true(*shown > 0);
	pass(fake.done_ns[0] - time_ns + NS_PER_MS);
	pace_found_over();
	assert_int_equal(*shown, 0);
	pace_found_over();
	go(1, 200000);
	assert_true(*shown > 0);
	assert_false(pace_has_waited());
}

UNIT_TEST(test_looks)
{
	assert_in_range(calls_of_looks(99), 1, 5); /* in relaxed mode */
	assert_in_range(calls_of_looks(12), 1, 16);
}
