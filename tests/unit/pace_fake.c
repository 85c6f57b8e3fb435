/*
 * The virtual-time device of the pacer's tests. pace_fake.h says how the device behaves.
 *
 * The time passes only in pass: a reading of the clock, a sleep and a call of the driver take what
 * the constants say. A stream is the time at which its work ends, and an event is the time at
 * which the device reaches it. Both times are known when the work is submitted, so a question about
 * an event compares its time with the present. Where several processes share device 0,
 * share_submit and share_mark find these times instead.
 *
 * Threads that use the device take turns: no lock protects its state.
 */
#include "pace_fake.h"

/* -- time ------------------------------------------------------------------------------------- */

uint64_t time_ns = FIRST_NS;

uint64_t then_ns = UINT64_MAX;
void (*then_do)(void);

void at_time(uint64_t ns, void (*what)(void))
{
	then_ns = ns;
	then_do = what;
}

void pass(uint64_t ns)
{
	time_ns += ns;
	if (time_ns < then_ns)
		return;
	then_ns = UINT64_MAX;
	then_do();
}

void (*meet)(void);

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

struct fake fake;

void (*share_submit)(uint64_t ns);
void (*share_mark)(struct fake_event *event);

struct fake_context context_a, context_b;
uint64_t call_ns = CALL_NS, kernel_events_ns = KERNEL_EVENTS_NS;
bool refuse_fences;

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

void submit(int device, struct fake_stream *stream, uint64_t ns)
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

void released(int device, unsigned stream)
{
	struct fake_stream *it = &fake.streams[device][stream];

	for (unsigned i = 0; i < fake.event_count; i++)
		if (fake.events[i].at_ns > time_ns)
			fake.events[i].at_ns = time_ns;
	it->done_ns = fake.done_ns[device] = time_ns;
}

void ended(int device, unsigned stream, uint64_t end_ns)
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

const struct pace_driver fake_driver = {
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

struct region region = REGION_CLOSED;
struct vgpu_hami_region *hami;
const char *fake_path;

struct vgpu_region_bucket *bucket_of(int device)
{
	return &region.file->own.device[device].bucket;
}

void joined_with(const struct pace_quota *given, unsigned region_pct, enum pace_rule rule)
{
	struct region_setup setup = setup_from(0, DEVICES, GIB);
	struct pace_quota quotas[VGPU_DEVICES_MAX];

	memset(&fake, 0, sizeof(fake));
	fake.no_fences = refuse_fences;
	context_a.gone = context_b.gone = false;
	unlink(fake_path);
	region = (struct region)REGION_CLOSED;
	assert_int_equal(open_claimed(fake_path, &setup, &region), 0);
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

void joined(unsigned cores_pct)
{
	const struct pace_quota quotas[DEVICES] = {{.index = 0}, {.index = 1}};

	joined_with(quotas, cores_pct, PACE_RULE_SWITCH);
}

void left(void)
{
	pace_forked();
	region_close(&region);
	then_ns = UINT64_MAX;
}

bool is_leased_for(const struct pace_work *work)
{
	return pace_lease(work->context, work->stream, work->per_thread, &work->what);
}

struct kernel kernel_on(int device, uint64_t ns)
{
	return (struct kernel){.function = 7 + (unsigned)device, .ns = ns, .device = device};
}

int launch(const struct kernel *kernel)
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

void launch_for_ns(int device, uint64_t ns)
{
	struct kernel kernel = {.function = 7 + (unsigned)device, .ns = ns, .device = device};

	assert_int_equal(launch(&kernel), 0);
}

uint64_t launch_timed(const struct kernel *kernel)
{
	uint64_t began_ns = time_ns;

	assert_int_equal(launch(kernel), 0);
	return time_ns - began_ns;
}

void launch_each(const struct kernel *kernels, unsigned count, unsigned *turn)
{
	assert_int_equal(launch(&kernels[(*turn)++ % count]), 0);
}

double share_of(const struct kernel *kernels, unsigned count, uint64_t for_ns)
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

struct sums sums_now(void)
{
	return (struct sums){bucket_of(0)->charged + bucket_of(0)->corrected, fake.given_ns[0],
			     fake.busy_ns[0], time_ns};
}

double charged_since(const struct sums *then)
{
	struct sums now = sums_now();

	return (double)(now.charged - then->charged) / (double)(now.given_ns - then->given_ns);
}

double share_since(const struct sums *then)
{
	return 100.0 * (double)(fake.busy_ns[0] - then->busy_ns) / (double)(time_ns - then->at_ns);
}

void run_begin(struct run *run, unsigned seconds, unsigned counted_seconds)
{
	*run = (struct run){.end_ns = time_ns + seconds * NS_PER_S,
			    .counted_ns = counted_seconds * NS_PER_S};
}

bool goes_on(struct run *run)
{
	if (!run->then.at_ns && time_ns < run->end_ns && run->end_ns - time_ns < run->counted_ns)
		run->then = sums_now();
	return time_ns < run->end_ns;
}

void assert_share(const char *what, double share, double quota, double less, double more)
{
	if (share >= quota - less && share <= quota + more)
		return;
	fail_msg("%s: %.2f %% of a quota of %.0f", what, share, quota);
}

void pass_until(const uint64_t *done_ns, uint64_t ahead_ns)
{
	while (*done_ns > time_ns + ahead_ns) {
		pass(*done_ns - time_ns - ahead_ns);
		if (meet)
			meet();
	}
}

void wait_until(uint64_t done_ns)
{
	if (done_ns > time_ns)
		pass(done_ns - time_ns);
	pace_waited();
}

void synchronise(int device)
{
	wait_until(fake.done_ns[device]);
}

void synchronise_stream(unsigned stream)
{
	pace_will_wait(&context_a, true);
	pass_until(&fake.streams[0][stream].done_ns, 0);
	pace_waited();
}

void stall(unsigned stream, uint64_t ns)
{
	struct fake_stream *it = &fake.streams[0][stream];
	struct pace_work work = {.context = &context_a, .stream = it};

	pace_will_stall(&work);
	pass(CALL_NS);
	it->done_ns = (it->done_ns > time_ns ? it->done_ns : time_ns) + ns;
	if (!fake.concurrent && fake.done_ns[0] < it->done_ns)
		fake.done_ns[0] = it->done_ns;
}
