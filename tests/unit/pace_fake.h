/*
 * Shared by the tests of the pacer: the virtual-time device. pace.cmake replaces the clocks and
 * sleeps of the components by those of pace_fake.c. So a test of seconds takes milliseconds, and
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

#define FIRST_NS (1000 * NS_PER_S) /* time_ns when the program starts */

extern uint64_t time_ns;

/* A function that is called when the time reaches then_ns, even within a sleep. It is called
 * once. then_ns is UINT64_MAX while no call is due. */
extern uint64_t then_ns;
extern void (*then_do)(void);

void at_time(uint64_t ns, void (*what)(void));

void pass(uint64_t ns);

/* Called before each use of the device, and after each sleep. Among processes that share the
 * device, it lets the one with the earliest time run. NULL: the process has the device alone. */
extern void (*meet)(void);

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

/* The devices and the driver. joined and joined_with reset all of it. */
struct fake {
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
};
extern struct fake fake;

/* Where several processes share device 0: what submits a kernel, and an event, instead. */
extern void (*share_submit)(uint64_t ns);
extern void (*share_mark)(struct fake_event *event);

extern struct fake_context context_a, context_b;

/* Each test begins with CALL_NS and KERNEL_EVENTS_NS here. */
extern uint64_t call_ns, kernel_events_ns;

extern bool refuse_fences; /* applies from the next joined_with on */

/* Gives the stream a kernel of that length, without a call of the pacer. */
void submit(int device, struct fake_stream *stream, uint64_t ns);

/* The stream's work ends now, and all events are reached. Nothing else may run. */
void released(int device, unsigned stream);

/* The kernel that would have ended at end_ns ends now, and later work ends that much earlier.
 * Nothing may run at the same time. */
void ended(int device, unsigned stream, uint64_t end_ns);

/* The driver that the pacer calls. */
extern const struct pace_driver fake_driver;

/* -- a process -------------------------------------------------------------------------------- */

/* The region of the process, and the part of it that has HAMi's layout. */
extern struct region region;
extern struct vgpu_hami_region *hami;

/* The path of that region, which each test's set-up names. `here` is a variable of each file that
 * includes place.h, so pace_fake.c does not see the one of the test. */
extern const char *fake_path;

struct vgpu_region_bucket *bucket_of(int device);

/* Attaches a process to a slice with DEVICES devices. given: their quotas; region_pct: the
 * quota in the region. */
void joined_with(const struct pace_quota *given, unsigned region_pct, enum pace_rule rule);

/* The same, with one quota for all devices. */
void joined(unsigned cores_pct);

/* The process leaves its slice, and at_time's function is not called any more. */
void left(void);

UNUSED static int fake_make(void **state)
{
	fake_path = here.path;
	return place_make(state);
}

/* The process leaves at the end of each test. */
UNUSED static int fake_remove(void **state)
{
	left();
	call_ns = CALL_NS;
	kernel_events_ns = KERNEL_EVENTS_NS;
	return place_remove(state);
}

#undef UNIT_SET_UP
#undef UNIT_TEAR_DOWN
#define UNIT_SET_UP    fake_make
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

/* Whether the work may use a lease. */
bool is_leased_for(const struct pace_work *work);

/* A kernel for the default stream, with a function of the device's own. */
struct kernel kernel_on(int device, uint64_t ns);

/* Launches a kernel as a hook does. Returns what the gate returns. */
int launch(const struct kernel *kernel);

/* Launches a kernel of that length on the default stream of the device. */
void launch_for_ns(int device, uint64_t ns);

/* Launches a kernel. Returns how long that took. */
uint64_t launch_timed(const struct kernel *kernel);

/* Launches the next of the kernels. *turn counts these launches. */
void launch_each(const struct kernel *kernels, unsigned count, unsigned *turn);

/* Launches the kernels alternately for for_ns. Returns the percentage of the device's time that
 * they took, from one launch to another, so that debts are the same at both ends. */
double share_of(const struct kernel *kernels, unsigned count, uint64_t for_ns);

/* The work that was charged, submitted and done until at_ns, on device 0. */
struct sums {
	int64_t charged;
	uint64_t given_ns, busy_ns, at_ns;
};

struct sums sums_now(void);

/* The charges since then, as a fraction of the work that was submitted. */
double charged_since(const struct sums *then);

/* The device time of this process since then, in percent. */
double share_since(const struct sums *then);

/* A time in which a test launches, of which the last part counts. */
struct run {
	uint64_t end_ns, counted_ns;
	struct sums then; /* as that part began */
};

void run_begin(struct run *run, unsigned seconds, unsigned counted_seconds);

/* Whether the run has time left. A test asks before each launch, which also begins the part that
 * counts. */
bool goes_on(struct run *run);

/* The share is at most `less` below and `more` above the quota, all of them in percent. `what`
 * names the case. */
void assert_share(const char *what, double share, double quota, double less, double more);

/* Passes the time until work that is expected to end at *done_ns has less than ahead_ns left. Other
 * processes may make its end later. */
void pass_until(const uint64_t *done_ns, uint64_t ahead_ns);

/* The host waits for work that ends at done_ns. */
void wait_until(uint64_t done_ns);

/* The host waits for all that it has submitted, by a call that announces nothing. */
void synchronise(int device);

/* The host waits for a stream of device 0, by a call that announces it. */
void synchronise_stream(unsigned stream);

/* The stream of device 0 waits that long after its work, while the device is free. */
void stall(unsigned stream, uint64_t ns);
