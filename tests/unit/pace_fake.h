/*
 * Shared by the tests of the pacer: the virtual-time device. pace.cmake replaces the clocks and
 * sleeps of the components by those of this file. So a test of seconds takes milliseconds, and
 * the machine's load changes nothing.
 *
 * A launch reaches the device at the end of the driver's call. A device executes one kernel
 * after the other, or those of different streams at the same time. A neighbour may have the
 * device for NEIGHBOUR_NS of every NEIGHBOUR_EACH_NS. Events take no time on the device. But
 * the time between two events includes the overhead that was measured on a GPU: more around a
 * single kernel, and less if the first event came to an idle device.
 */
#pragma once

#include "chance.h"
#include "pace.h"
#include "region_fixture.h"

#define MS                NS_PER_MS
#define READ_NS           30       /* a reading of the clock takes */
#define CALL_NS           1000     /* a call of the driver takes, usually */
#define PAUSE_NS          (MS / 5) /* after such a pause, fake.slow_ns applies */
#define ASK_NS            1000     /* a question to the driver takes */
#define ASK_EVENT_NS      100      /* a question about an event takes */
#define OVERDUE_WAKE_NS   60000    /* a sleeper wakes late by */
#define NEIGHBOUR_NS      (2 * MS) /* of every NEIGHBOUR_EACH_NS */
#define NEIGHBOUR_EACH_NS (6 * MS)
#define EVENTS_NS         1300
#define KERNEL_EVENTS_NS  2050
#define IDLE_EVENTS_NS    420
#define DEVICES           2
#define STREAMS           4
#define EVENTS            4096

/* -- time ------------------------------------------------------------------------------------- */

#define FIRST_NS (1000 * NS_PER_S)

static uint64_t time_ns = FIRST_NS;

/* A function that is called when the time reaches then_ns, even within a sleep. */
static uint64_t then_ns = UINT64_MAX;
static void (*then_do)(void);

UNUSED static void at_time(uint64_t ns, void (*what)(void))
{
	then_ns = ns;
	then_do = what;
}

static void pass(uint64_t ns)
{
	time_ns += ns;
	if (time_ns < then_ns)
		return;
	then_ns = UINT64_MAX;
	then_do();
}

/* Called before each use of the device, and after each sleep. Among processes that share the
 * device, it lets the one with the earliest time run. */
static void (*meet)(void);

uint64_t __wrap_clock_now_ns(void);
uint64_t __wrap_clock_coarse_ns(void);
uint64_t __wrap_clock_steady_ns(void);
int64_t __wrap_clock_unix_s(void);
void __wrap_sys_sleep_ns(uint64_t ns);

uint64_t __wrap_clock_now_ns(void)
{
	pass(READ_NS);
	return time_ns;
}

uint64_t __wrap_clock_coarse_ns(void)
{
	return time_ns - time_ns % MS;
}

uint64_t __wrap_clock_steady_ns(void)
{
	pass(READ_NS);
	return time_ns;
}

int64_t __wrap_clock_unix_s(void)
{
	return (int64_t)(time_ns / NS_PER_S);
}

void __wrap_sys_sleep_ns(uint64_t ns)
{
	pass(ns + OVERDUE_WAKE_NS);
	if (meet)
		meet();
}

/* -- the device ------------------------------------------------------------------------------- */

struct fake_stream {
	uint64_t done_ns;
};

struct fake_context {
	bool gone;
};

struct fake_event {
	struct fake_context *context;
	uint64_t at_ns;     /* 0: never recorded */
	uint64_t work_ns;   /* on a shared device: the process's work that comes before it */
	uint64_t submitted; /* kernels that were submitted before it */
	bool after_idle;    /* the last of these kernels came to an idle device */
};

static struct fake {
	struct fake_stream streams[DEVICES][STREAMS];
	uint64_t done_ns[DEVICES];  /* when all work ends */
	uint64_t others_until_ns;   /* another process has device 0 until then */
	uint64_t busy_ns[DEVICES];  /* device time of this process, in all */
	uint64_t given_ns[DEVICES]; /* work that was submitted */
	struct fake_event events[EVENTS];
	unsigned event_count;
	uint64_t submitted;
	bool came_to_idle; /* the last kernel did */
	uint64_t fences;
	uint64_t elapsed;   /* questions for the time between two events */
	uint64_t calls;     /* calls of the driver for measuring */
	uint64_t records;   /* of these calls, those that record an event in a stream */
	uint64_t leased;    /* launches that used a lease */
	bool concurrent;    /* streams run at the same time */
	bool blocks;        /* a launch returns when its kernel ends */
	bool early;         /* a launch reaches the device after a fifth of the driver's call */
	uint64_t record_ns; /* time to record an event */
	/* additional time of a launch's call after PAUSE_NS without a launch */
	uint64_t slow_ns;
	uint64_t called_ns;
	uint64_t seen_ns; /* time until the driver knows that an event was reached */
	/* gap between two kernels, which events around one kernel do not show */
	uint64_t gap_ns;
	uint64_t copied_ns; /* end of the last copy from the host; only fences wait for it */
	/* time from the end of a launch's call until an idle device begins it */
	uint64_t start_ns;
	uint64_t jitter_ns; /* random addition to start_ns and event_ns, at most */
	/* stream time of an event; 0: the overheads EVENTS_NS and others apply instead */
	uint64_t event_ns;
	uint64_t tick_ns;  /* resolution of the device's clock; 0: that of the host's */
	int64_t drift_ppm; /* of the device's clock against the host's */
	uint64_t chance;   /* state of the random numbers */
	bool neighbour_works;
	char line[512];                                  /* the last logged line */
	unsigned lines;                                  /* number of logged lines */
	bool no_events, no_records, no_fences, no_times; /* calls that the driver refuses */
} fake;

/* Where several processes share device 0: what submits a kernel, and an event, instead. */
static void (*share_submit)(uint64_t ns);
static void (*share_mark)(struct fake_event *event);

static struct fake_context context_a, context_b;
static uint64_t call_ns = CALL_NS, kernel_events_ns = KERNEL_EVENTS_NS;
static bool refuse_fences; /* applies from the next joined_with on */

/* When the neighbour begins its turn of that number: at random, as real programs do not
 * synchronise. */
static uint64_t neighbour_begins(uint64_t turn)
{
	uint64_t chance = turn * 0x9e3779b97f4a7c15u >> 40;

	return turn * NEIGHBOUR_EACH_NS + chance % (NEIGHBOUR_EACH_NS - NEIGHBOUR_NS);
}

/* When work of this process that begins at from_ns and takes ns ends. */
static uint64_t worked(uint64_t from_ns, uint64_t ns)
{
	if (!fake.neighbour_works)
		return from_ns + ns;
	for (;;) {
		uint64_t turn = from_ns / NEIGHBOUR_EACH_NS;
		uint64_t begins_ns = neighbour_begins(turn), ends_ns = begins_ns + NEIGHBOUR_NS;

		if (ends_ns <= from_ns)
			begins_ns = neighbour_begins(turn + 1), ends_ns = begins_ns + NEIGHBOUR_NS;
		if (from_ns >= begins_ns)
			from_ns = ends_ns;
		else if (ns <= begins_ns - from_ns)
			return from_ns + ns;
		else {
			ns -= begins_ns - from_ns;
			from_ns = ends_ns;
		}
	}
}

static uint64_t jitter(void)
{
	fake.chance = fake.chance * 6364136223846793005u + 1442695040888963407u;
	return fake.jitter_ns ? (fake.chance >> 33) % fake.jitter_ns : 0;
}

/* The reading of the device's clock at that time. */
static int64_t device_clock(uint64_t ns)
{
	int64_t since_ns = (int64_t)(ns - FIRST_NS);
	int64_t clock_ns = since_ns + since_ns / 1000000 * fake.drift_ppm;

	return fake.tick_ns ? clock_ns - clock_ns % (int64_t)fake.tick_ns : clock_ns;
}

/* Notes a call of the driver for measuring. */
static void called(void)
{
	fake.calls++;
	if (meet)
		meet();
}

static void submit(int device, struct fake_stream *stream, uint64_t ns)
{
	uint64_t from_ns = stream->done_ns, end_ns, free_ns = fake.done_ns[device];

	if (share_submit && device == 0) {
		fake.came_to_idle = free_ns <= time_ns;
		fake.given_ns[0] += ns;
		fake.submitted++;
		share_submit(ns);
		return;
	}
	if (!fake.concurrent && from_ns < free_ns)
		from_ns = free_ns;
	fake.came_to_idle = from_ns <= time_ns && worked(time_ns, 0) == time_ns;
	if (from_ns < time_ns + fake.start_ns)
		from_ns = time_ns + fake.start_ns + jitter();
	ns += fake.came_to_idle ? 0 : fake.gap_ns;
	end_ns = worked(from_ns, ns);
	stream->done_ns = end_ns;
	fake.given_ns[device] += ns;
	fake.submitted++;
	if (free_ns < from_ns)
		free_ns = from_ns;
	if (end_ns > free_ns) { /* kernels that run at the same time count once */
		fake.busy_ns[device] += fake.concurrent ? end_ns - free_ns : ns;
		fake.done_ns[device] = end_ns;
	}
}

/* The stream's work ends now, and all events are reached. Nothing else may run. */
UNUSED static void released(int device, unsigned stream)
{
	struct fake_stream *it = &fake.streams[device][stream];

	for (unsigned i = 0; i < fake.event_count; i++)
		if (fake.events[i].at_ns > time_ns)
			fake.events[i].at_ns = time_ns;
	it->done_ns = fake.done_ns[device] = time_ns;
}

/* The kernel that would have ended at end_ns ends now, and later work ends that much earlier.
 * Nothing may run at the same time. */
UNUSED static void ended(int device, unsigned stream, uint64_t end_ns)
{
	uint64_t earlier_ns = end_ns > time_ns ? end_ns - time_ns : 0;

	for (unsigned i = 0; i < fake.event_count; i++)
		if (fake.events[i].at_ns >= end_ns)
			fake.events[i].at_ns -= earlier_ns;
	fake.streams[device][stream].done_ns -= earlier_ns;
	fake.done_ns[device] -= earlier_ns;
	fake.busy_ns[device] -= earlier_ns;
}

static void *fake_event_make(void *context)
{
	struct fake_context *of = context;

	assert_false(of->gone);
	if (fake.no_events || fake.event_count == EVENTS)
		return NULL;
	fake.events[fake.event_count].context = of;
	return &fake.events[fake.event_count++];
}

static struct fake_stream *stream_of(const struct pace_work *work)
{
	return work->stream ? work->stream : &fake.streams[work->device][0]; /* the default one */
}

static bool fake_record(void *event, const struct pace_work *work)
{
	struct fake_stream *stream = stream_of(work);
	struct fake_event *it = event;

	fake.records++;
	called();
	assert_false(it->context->gone);
	assert_ptr_equal(it->context, work->context);
	if (fake.no_records)
		return false;
	pass(fake.record_ns);
	it->at_ns = worked(stream->done_ns > time_ns ? stream->done_ns : time_ns, 0);
	if (stream->done_ns <= time_ns && it->at_ns < fake.others_until_ns)
		it->at_ns = fake.others_until_ns;
	if (fake.event_ns) {
		it->at_ns += fake.event_ns + jitter();
		stream->done_ns = it->at_ns;
		if (!fake.concurrent && fake.done_ns[work->device] < it->at_ns)
			fake.done_ns[work->device] = it->at_ns;
	}
	it->after_idle = fake.came_to_idle;
	it->submitted = fake.submitted;
	if (share_mark && work->device == 0)
		share_mark(it);
	return true;
}

/* Records an event after the work of all streams of the device. */
static bool fake_fence(void *event, const struct pace_work *work)
{
	struct fake_event *it = event;

	fake.fences++;
	called();
	assert_false(it->context->gone);
	assert_ptr_equal(it->context, work->context);
	if (fake.no_records || fake.no_fences)
		return false;
	pass(fake.record_ns);
	it->at_ns = worked(
		fake.done_ns[work->device] > time_ns ? fake.done_ns[work->device] : time_ns, 0);
	if (it->at_ns < fake.copied_ns)
		it->at_ns = fake.copied_ns;
	it->submitted = fake.submitted;
	if (share_mark && work->device == 0)
		share_mark(it);
	return true;
}

static bool fake_is_reached(void *event)
{
	const struct fake_event *it = event;
	bool seen = it->at_ns + fake.seen_ns <= time_ns;

	called();
	assert_false(it->context->gone);
	pass(ASK_EVENT_NS);
	return seen && !fake.no_times;
}

static enum pace_answer fake_elapsed(void *begin, void *end, uint64_t *ret_ns)
{
	const struct fake_event *from = begin, *to = end;
	bool seen = to->at_ns + fake.seen_ns <= time_ns;
	int64_t took_ns;

	fake.elapsed++;
	called();
	assert_false(from->context->gone || to->context->gone);
	if (fake.no_times)
		return PACE_UNKNOWN;
	if (!seen)
		return PACE_NOT_YET;
	took_ns = device_clock(to->at_ns) - device_clock(from->at_ns);
	*ret_ns = took_ns > 0 ? (uint64_t)took_ns : 0;
	if (fake.event_ns)
		return PACE_TOOK;
	*ret_ns += (to->submitted - from->submitted != 1 ? EVENTS_NS
		    : to->after_idle                     ? IDLE_EVENTS_NS
							 : kernel_events_ns - fake.gap_ns);
	return PACE_TOOK;
}

static bool fake_is_busy(const struct pace_work *work)
{
	const struct fake_stream *stream = stream_of(work);

	called();
	pass(ASK_NS);
	return stream->done_ns > time_ns;
}

static void fake_look(void)
{
}

static void fake_say(const char *line)
{
	snprintf(fake.line, sizeof(fake.line), "%s", line);
	fake.lines++;
}

static const struct pace_driver fake_driver = {
	.event_make = fake_event_make,
	.record = fake_record,
	.fence = fake_fence,
	.is_reached = fake_is_reached,
	.elapsed = fake_elapsed,
	.is_busy = fake_is_busy,
	.refresh_limits = fake_look,
	.say = fake_say,
};

/* -- a process -------------------------------------------------------------------------------- */

static struct region region = REGION_CLOSED;
static struct vgpu_hami_region *hami;

static struct vgpu_region_bucket *bucket_of(int device)
{
	return &region.file->own.device[device].bucket;
}

/* Attaches a process to a slice with DEVICES devices. given: their quotas; region_pct: the
 * quota in the region. */
UNUSED static void joined_with(const struct pace_quota *given, unsigned region_pct,
			       enum pace_rule rule)
{
	struct region_setup setup = setup_from(0, DEVICES, GIB);
	struct pace_quota quotas[VGPU_DEVICES_MAX];

	memset(&fake, 0, sizeof(fake));
	fake.no_fences = refuse_fences;
	context_a.gone = context_b.gone = false;
	unlink(here.path);
	region = (struct region)REGION_CLOSED;
	assert_int_equal(open_claimed(here.path, &setup, &region), 0);
	hami = &region.file->hami;
	hami->sm_limit[0] = hami->sm_limit[1] = region_pct;
	for (int i = 0; i < VGPU_DEVICES_MAX; i++) {
		quotas[i] = given[i < DEVICES ? i : 0];
		if (i >= DEVICES)
			quotas[i].index = -1;
	}
	pace_forked();
	pace_attach(&region, quotas, rule, &fake_driver);
}

/* The same, with one quota for all devices. */
UNUSED static void joined(unsigned cores_pct)
{
	const struct pace_quota quotas[DEVICES] = {{.index = 0}, {.index = 1}};

	joined_with(quotas, cores_pct, PACE_RULE_SWITCH);
}

UNUSED static void left(void)
{
	pace_forked();
	region_close(&region);
	then_ns = UINT64_MAX;
}

/* The process leaves at the end of each test. */
UNUSED static int fake_remove(void **state)
{
	left();
	call_ns = CALL_NS;
	kernel_events_ns = KERNEL_EVENTS_NS;
	return place_remove(state);
}

#undef UNIT_TEAR_DOWN
#define UNIT_TEAR_DOWN fake_remove

/* A kernel to launch. */
struct kernel {
	uint64_t function;
	uint64_t ns;
	int device;
	unsigned stream;
	struct fake_context *context; /* NULL: context_a */
	bool graph;
};

static bool is_leased_for(const struct pace_work *work)
{
	return pace_lease(work->context, work->stream, work->per_thread, &work->what);
}

UNUSED static struct kernel kernel_on(int device, uint64_t ns)
{
	return (struct kernel){.function = 7 + (unsigned)device, .ns = ns, .device = device};
}

/* Launches a kernel as a hook does. Returns what the gate returns. */
static int launch(const struct kernel *kernel)
{
	struct fake_stream *stream = &fake.streams[kernel->device][kernel->stream];
	struct pace_work work = {.device = kernel->device,
				 .context = kernel->context ? kernel->context : &context_a,
				 .stream = stream,
				 .what = {.function = kernel->function,
					  .shape = 1,
					  .blocks = 1,
					  .graph = kernel->graph}};
	struct pace_pass pace = {.meter = NULL};
	int error = 0;

	if (meet)
		meet();
	if (!pace_is_open()) {
		bool leased = is_leased_for(&work);

		fake.leased += leased;
		if (!leased)
			error = pace_wait_monitor();
		if (!leased && !error && pace_must_enter())
			error = pace_enter(&pace, &work);
	}
	if (error)
		return error;
	if (time_ns - fake.called_ns > PAUSE_NS)
		pass(fake.slow_ns);
	pass(fake.early ? call_ns / 5 : call_ns);
	fake.called_ns = time_ns;
	if (meet)
		meet();
	submit(kernel->device, stream, kernel->ns);
	if (fake.early)
		pass(call_ns - call_ns / 5);
	if (fake.blocks)
		pass(stream->done_ns - time_ns);
	pace_leave(&pace, &work, true);
	return 0;
}

/* Launches a kernel of that length on the default stream of the device. */
UNUSED static void launch_for_ns(int device, uint64_t ns)
{
	struct kernel kernel = {.function = 7 + (unsigned)device, .ns = ns, .device = device};

	assert_int_equal(launch(&kernel), 0);
}

/* Launches a kernel. Returns how long that took. */
UNUSED static uint64_t launch_timed(const struct kernel *kernel)
{
	uint64_t began_ns = time_ns;

	assert_int_equal(launch(kernel), 0);
	return time_ns - began_ns;
}

UNUSED static void launch_each(const struct kernel *kernels, unsigned count, unsigned *turn)
{
	assert_int_equal(launch(&kernels[(*turn)++ % count]), 0);
}

/* Launches the kernels alternately for for_ns. Returns the percentage of the device's time that
 * they took, from one launch to another, so that debts are the same at both ends. */
UNUSED static double share_of(const struct kernel *kernels, unsigned count, uint64_t for_ns)
{
	int device = kernels[0].device;
	unsigned turn = 0;
	uint64_t began_ns, busy_ns;

	launch_each(kernels, count, &turn);
	began_ns = time_ns;
	busy_ns = fake.busy_ns[device];
	do
		launch_each(kernels, count, &turn);
	while (time_ns - began_ns < for_ns || turn % count != 1 % count);
	return 100.0 * (double)(fake.busy_ns[device] - busy_ns) / (double)(time_ns - began_ns);
}

/* The work that was charged, submitted and done until at_ns. */
struct sums {
	int64_t charged;
	uint64_t given_ns, busy_ns, at_ns;
};

UNUSED static struct sums sums_now(void)
{
	return (struct sums){bucket_of(0)->charged + bucket_of(0)->corrected, fake.given_ns[0],
			     fake.busy_ns[0], time_ns};
}

/* The charges since then, as a fraction of the work that was submitted. */
UNUSED static double charged_since(const struct sums *then)
{
	struct sums now = sums_now();

	return (double)(now.charged - then->charged) / (double)(now.given_ns - then->given_ns);
}

/* The device time of this process since then, in percent. */
UNUSED static double share_since(const struct sums *then)
{
	return 100.0 * (double)(fake.busy_ns[0] - then->busy_ns) / (double)(time_ns - then->at_ns);
}

/* A time in which a test launches, of which the last part counts. */
struct run {
	uint64_t end_ns, counted_ns;
	struct sums then; /* as that part began */
};

UNUSED static void run_begin(struct run *run, unsigned seconds, unsigned counted_seconds)
{
	*run = (struct run){.end_ns = time_ns + seconds * NS_PER_S,
			    .counted_ns = counted_seconds * NS_PER_S};
}

UNUSED static bool goes_on(struct run *run)
{
	if (!run->then.at_ns && time_ns < run->end_ns && run->end_ns - time_ns < run->counted_ns)
		run->then = sums_now();
	return time_ns < run->end_ns;
}

UNUSED static void assert_share(const char *what, double share, double quota, double less,
				double more)
{
	if (share >= quota - less && share <= quota + more)
		return;
	fail_msg("%s: %.2f %% of a quota of %.0f", what, share, quota);
}

/* Passes the time until work that is expected to end at *done_ns has less than ahead_ns left. Other
 * processes may make its end later. */
UNUSED static void pass_until(const uint64_t *done_ns, uint64_t ahead_ns)
{
	while (*done_ns > time_ns + ahead_ns) {
		pass(*done_ns - time_ns - ahead_ns);
		if (meet)
			meet();
	}
}

/* The host waits for work that ends at done_ns. */
UNUSED static void wait_until(uint64_t done_ns)
{
	if (done_ns > time_ns)
		pass(done_ns - time_ns);
	pace_waited();
}

/* The host waits for all that it has submitted, by a call that announces nothing. */
UNUSED static void synchronise(int device)
{
	wait_until(fake.done_ns[device]);
}

/* The host waits for a stream, by a call that announces it. */
UNUSED static void synchronise_stream(unsigned stream)
{
	pace_will_wait(&context_a, true);
	pass_until(&fake.streams[0][stream].done_ns, 0);
	pace_waited();
}

/* The stream waits that long after its work, while the device is free. */
UNUSED static void stall(unsigned stream, uint64_t ns)
{
	struct fake_stream *it = &fake.streams[0][stream];
	struct pace_work work = {.context = &context_a, .stream = it};

	pace_will_stall(&work);
	pass(CALL_NS);
	it->done_ns = (it->done_ns > time_ns ? it->done_ns : time_ns) + ns;
	if (!fake.concurrent && fake.done_ns[0] < it->done_ns)
		fake.done_ns[0] = it->done_ns;
}
