/*
 * Threads that launch at once, each to its own stream, on a device that is reckoned, in time that
 * is. One thread runs at a time: the one that has come least far in its own time. The device shares
 * its time evenly between the streams that have work, as a GPU does where two kernels fit on it
 * beside each other: so what a kernel takes depends on what else there is, and what one fence waits
 * for has more in it than what was submitted since another.
 */
#include <pthread.h>
#include <semaphore.h>

#include "pace.h"
#include "region_fixture.h"

#define MS           NS_PER_MS
#define THREADS      8
#define WATCHER      THREADS /* the test itself */
#define RING         (1 << 14)
#define EVENTS       1024
#define LOOK_NS      12000 /* a thread that waits for an event looks so often, at least */
#define WAKE_NS      50000 /* a sleeper is late by so much, and by up to WAKE_MORE_NS more */
#define WAKE_MORE_NS 20000

/* -- time ------------------------------------------------------------------------------------- */

static struct turn {
	uint64_t at_ns; /* its own time */
	bool lives;
	sem_t may_go;
} turns[THREADS + 1];

static __thread unsigned me = WATCHER;
static uint64_t time_ns; /* of the one that runs */
static uint64_t random_state;

static uint64_t random_below(uint64_t bound)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (random_state >> 33) % bound;
}

static void go_on(void)
{
	unsigned next = me;

	for (unsigned i = 0; i <= THREADS; i++)
		if (turns[i].lives && (!turns[next].lives || turns[i].at_ns < turns[next].at_ns))
			next = i;
	time_ns = turns[next].at_ns;
	if (next == me || !turns[next].lives)
		return;
	sem_post(&turns[next].may_go);
	if (!turns[me].lives)
		return;
	while (sem_wait(&turns[me].may_go) != 0)
		;
	time_ns = turns[me].at_ns;
}

static void pass(uint64_t ns)
{
	turns[me].at_ns += ns;
	go_on();
}

uint64_t __wrap_clock_now_ns(void);
uint64_t __wrap_clock_coarse_ns(void);
uint64_t __wrap_clock_steady_ns(void);
int64_t __wrap_clock_unix_s(void);
void __wrap_sys_sleep_ns(uint64_t ns);

uint64_t __wrap_clock_now_ns(void)
{
	pass(30);
	return time_ns;
}

uint64_t __wrap_clock_coarse_ns(void)
{
	return time_ns - time_ns % MS;
}

uint64_t __wrap_clock_steady_ns(void)
{
	return __wrap_clock_now_ns();
}

int64_t __wrap_clock_unix_s(void)
{
	return (int64_t)(time_ns / NS_PER_S);
}

void __wrap_sys_sleep_ns(uint64_t ns)
{
	pass(ns + WAKE_NS + random_below(WAKE_MORE_NS));
}

/* -- the device ------------------------------------------------------------------------------- */

struct event {
	unsigned awaits; /* so many streams have to come to it yet */
	unsigned times;  /* how often it was recorded */
	uint64_t at_ns;
};

struct item {
	double left_ns;      /* of a kernel */
	struct event *event; /* or NULL */
	unsigned times;      /* the event's, then */
};

static struct stream {
	struct item ring[RING];
	unsigned first, end;
	uint64_t done; /* kernels */
} streams[THREADS];

static struct event events[EVENTS];
static unsigned event_count;
static double device_ns; /* it has come so far */
static double busy_ns;   /* and was at work so long */
static double given_ns;

static struct item *head(struct stream *stream)
{
	return stream->first == stream->end ? NULL : &stream->ring[stream->first % RING];
}

static void push(struct stream *stream, struct item item)
{
	assert_true(stream->end - stream->first < RING);
	stream->ring[stream->end++ % RING] = item;
}

static void reach_events(void)
{
	for (unsigned i = 0; i < THREADS; i++) {
		struct item *item;

		while ((item = head(&streams[i])) && item->event) {
			struct event *event = item->event;

			if (item->times == event->times && --event->awaits == 0)
				event->at_ns = (uint64_t)device_ns;
			streams[i].first++;
		}
	}
}

/* What it does up to the next end of a kernel, or up to then. */
static void step(double until_ns)
{
	double ns = until_ns - device_ns;
	unsigned at_work = 0;

	for (unsigned i = 0; i < THREADS; i++)
		at_work += head(&streams[i]) != NULL;
	for (unsigned i = 0; i < THREADS; i++) {
		const struct item *item = head(&streams[i]);

		if (item && item->left_ns * at_work < ns)
			ns = item->left_ns * at_work;
	}
	device_ns += ns;
	busy_ns += at_work ? ns : 0;
	for (unsigned i = 0; i < THREADS; i++) {
		struct item *item = head(&streams[i]);

		if (!item)
			continue;
		item->left_ns -= ns / at_work;
		if (item->left_ns < 1) {
			streams[i].first++;
			streams[i].done++;
		}
	}
	reach_events();
}

static void run_device(void)
{
	reach_events();
	while (device_ns < (double)time_ns)
		step((double)time_ns);
}

static void *make_event(void *context)
{
	(void)context;
	return event_count < EVENTS ? &events[event_count++] : NULL;
}

static void record_in(struct stream *first, unsigned count, struct event *event)
{
	run_device();
	event->times++;
	event->awaits = count;
	for (unsigned i = 0; i < count; i++)
		push(&first[i], (struct item){.event = event, .times = event->times});
	reach_events();
}

static bool record(void *event, const struct pace_work *work)
{
	pass(800);
	record_in(work->stream, 1, event);
	pass(400);
	return true;
}

static bool fence(void *event, const struct pace_work *work)
{
	(void)work;
	pass(1000);
	record_in(streams, THREADS, event);
	pass(500);
	return true;
}

static enum pace_answer elapsed(void *begin, void *end, uint64_t *ret_ns)
{
	const struct event *from = begin, *to = end;

	pass(700);
	run_device();
	if (from->awaits || to->awaits)
		return PACE_NOT_YET;
	assert_true(to->at_ns >= from->at_ns); /* each is recorded for one purpose at a time */
	*ret_ns = to->at_ns - from->at_ns + 1300;
	return PACE_TOOK;
}

static bool is_reached(void *event)
{
	const struct event *it = event;

	pass(100);
	run_device();
	return !it->awaits;
}

static bool is_busy(const struct pace_work *work)
{
	pass(1000);
	run_device();
	return head(work->stream) != NULL;
}

static void look(void)
{
}

static const struct pace_driver driver = {
	.event_make = make_event,
	.record = record,
	.fence = fence,
	.is_reached = is_reached,
	.elapsed = elapsed,
	.is_busy = is_busy,
	.refresh_limits = look,
};

/* -- the process ------------------------------------------------------------------------------ */

struct program {
	unsigned threads, quota;
	unsigned in_flight;    /* of each: then it waits for the first of them */
	uint64_t kernel_ns[2]; /* at random */
};

static const struct program *program;
static struct region region;
static char context; /* its address is a context's */
static uint64_t end_ns;
static int64_t lowest_ns; /* of the bucket, behind a launch */

static int64_t level(void)
{
	const struct vgpu_region_bucket *bucket = &region.file->own.device[0].bucket;

	return bucket->credit - bucket->charged - bucket->corrected;
}

static void launch(struct stream *stream)
{
	uint64_t which = random_below(2);
	struct pace_work work = {.context = &context,
				 .stream = stream,
				 .what = {.function = 1 + which, .shape = 1, .blocks = 1}};
	struct pace_pass pace = {.meter = NULL};

	if (!pace_is_open() &&
	    !pace_lease(work.context, work.stream, work.per_thread, &work.what)) {
		assert_int_equal(pace_wait_monitor(), 0);
		if (pace_all_must_enter())
			assert_int_equal(pace_enter(&pace, &work), 0);
	}
	pass(1500 + random_below(500));
	run_device();
	push(stream, (struct item){.left_ns = (double)program->kernel_ns[which]});
	given_ns += (double)program->kernel_ns[which];
	pass(1000 + random_below(500));
	pace_leave(&pace, &work, true);
	if (level() < lowest_ns)
		lowest_ns = level();
}

static void wait_for(struct stream *stream, uint64_t done)
{
	for (run_device(); stream->done < done; run_device()) {
		const struct item *item = head(stream);

		pass(item->left_ns > LOOK_NS ? (uint64_t)item->left_ns : LOOK_NS);
	}
	pass(LOOK_NS);
	pace_waited();
}

static void *work(void *at)
{
	struct stream *stream = at;

	me = (unsigned)(stream - streams);
	while (sem_wait(&turns[me].may_go) != 0)
		;
	time_ns = turns[me].at_ns;
	for (uint64_t launched = 1; time_ns < end_ns; launched++) {
		launch(stream);
		pass(1500);
		if (launched >= program->in_flight)
			wait_for(stream, launched - program->in_flight + 1);
	}
	turns[me].lives = false;
	go_on();
	return NULL;
}

static void join_slice(void)
{
	struct region_setup setup = setup_from(0, 1, GIB);
	struct pace_quota quotas[VGPU_DEVICES_MAX];

	unlink(here.path);
	region = (struct region)REGION_CLOSED;
	assert_int_equal(open_claimed(here.path, &setup, &region), 0);
	region.file->hami.sm_limit[0] = program->quota;
	for (int i = 0; i < VGPU_DEVICES_MAX; i++)
		quotas[i] = (struct pace_quota){.index = i ? -1 : 0};
	pace_forked();
	pace_attach(&region, quotas, PACE_RULE_SWITCH, &driver);
}

/* Which part of the device's time it gets in three seconds behind the first half of one, percent.
 */
static double share_of(const struct program *it)
{
	pthread_t threads[THREADS];
	double busy, share;

	program = it;
	memset(streams, 0, sizeof(streams));
	memset(events, 0, sizeof(events));
	event_count = 0;
	random_state = 1;
	turns[WATCHER] = (struct turn){.at_ns = 1000 * NS_PER_S, .lives = true};
	sem_init(&turns[WATCHER].may_go, 0, 0);
	time_ns = turns[WATCHER].at_ns;
	device_ns = (double)time_ns;
	end_ns = time_ns + 4 * NS_PER_S;
	join_slice();
	for (unsigned i = 0; i < it->threads; i++) {
		turns[i] = (struct turn){.at_ns = time_ns + (uint64_t)100 * i, .lives = true};
		sem_init(&turns[i].may_go, 0, 0);
		assert_int_equal(pthread_create(&threads[i], NULL, work, &streams[i]), 0);
	}
	pass(NS_PER_S / 2);
	run_device();
	lowest_ns = 0;
	busy = busy_ns;
	pass(3 * NS_PER_S);
	run_device();
	share = 100 * (busy_ns - busy) / (3.0 * NS_PER_S);
	turns[WATCHER].lives = false;
	go_on();
	for (unsigned i = 0; i < it->threads; i++)
		pthread_join(threads[i], NULL);
	pace_forked();
	region_close(&region);
	harness_note("%u threads: %.2f of %u, lowest %.1f ms", it->threads, share, it->quota,
		     (double)lowest_ns / MS);
	return share;
}

static void assert_share(const struct program *it, double within)
{
	double share = share_of(it);

	if (share < it->quota - within || share > it->quota + within)
		fail_msg("%u threads, kernels of %.0f us: %.2f %% of a quota of %u", it->threads,
			 (double)it->kernel_ns[0] / 1000, share, it->quota);
}

/* -- tests ------------------------------------------------------------------------------------ */

/* What one window has too much, the next has too little. */
UNIT_TEST(test_beside_each_other)
{
	for (unsigned quota = 30; quota <= 80; quota += 50) {
		const struct program alike = {4, quota, 8, {200000, 200000}};
		const struct program more = {8, quota, 8, {MS, MS}};

		assert_share(&alike, 0.8);
		assert_share(&more, 0.8);
	}
}

/* Whose own stream has nothing to do takes the device to be idle where it is not. */
UNIT_TEST(test_each_waits)
{
	static const struct program unlike = {8, 80, 1, {20000, MS}};
	static const struct program shorter = {8, 80, 1, {10000, MS / 2}};

	assert_share(&unlike, 2);
	assert_share(&shorter, 5);
}

/* What ran at once is not paid for as often as there were threads. */
UNIT_TEST(test_first_launches)
{
	static const struct program unlike = {8, 30, 8, {50000, 5 * MS}};

	assert_share(&unlike, 1.5);
}

/* Of those that wait, one goes when there is room for one. */
UNIT_TEST(test_one_at_a_time)
{
	static const struct program each = {8, 30, 8, {20 * MS, 20 * MS}};

	assert_share(&each, 3);
	if (lowest_ns < -200 * (int64_t)MS)
		fail_msg("%.1f ms of debts", -(double)lowest_ns / MS);
}
