/*
 * Processes at work in one region: eight who charge, refund and share at random and time each of
 * their operations; a control, who does what the kernel does for them and never touches the region;
 * and the doomed, a ninth, who does all that can be done in a region over and over, until what is
 * in store for it happens (region_crowd.c).
 */
#pragma once

#include "region_internal.h"
#include "region_share_walk.h"
#include "stopwatch.h"
#include "watched.h"

#define OTHERS   8
#define DOOMED   OTHERS /* its place among the workers */
#define WORKERS  (OTHERS + 1)
#define LIMIT    (64 * MIB)
#define HOLDINGS 8
#define IMPORTS  3

/* What a worker has of shared memory. Keys are never used twice; 0 is none. */
struct shared {
	uint64_t key, bytes;
};

/* Of the operations since crowd->since_ns: by whoever is timed. */
struct timing {
	uint64_t since_ns;
	uint64_t longest_ns; /* what the longest took, without the CPU that others had */
	uint64_t starved_ns; /* the most that an operation was kept from running */
};

/* By the worker, but for the pid. */
struct worker {
	uint64_t opening;    /* it comes to the region */
	uint64_t operations; /* since it has a slot */
	uint64_t refused;    /* operations: somebody living kept the lock */
	struct timing timing;
	uint64_t frozen; /* it stands still, with `held` and `shared` on the region's device 0 */
	uint64_t held;
	struct shared shared[1 + IMPORTS]; /* its export, and imports */
	uint64_t offered;                  /* the key of its export, for the others */
	pid_t pid;
};

/* The same of oneself. */
struct holdings {
	uint64_t held[HOLDINGS];
	struct shared exported, imported[IMPORTS];
	uint64_t exports; /* so many, ever */
};

/* In shared memory. The test writes but for what is said. */
struct crowd {
	char path[96];
	uint64_t freeze, finish;
	uint64_t busy;     /* they work without a pause */
	uint64_t plain;    /* nothing is shared */
	uint64_t since_ns; /* operations are timed from then */
	uint64_t held;     /* by the others, by their own count: never more than is charged */
	uint64_t highest;  /* the most that it was */
	uint64_t mortal;   /* the others die, too: nobody counts what they held */
	struct timing control;
	uint64_t control_rounds; /* that it has timed */
	pid_t control_pid;
	struct worker workers[WORKERS];
};

static struct crowd *crowd;
static void (*others_hook)(enum region_step step); /* set before they are started */

/* -- time ------------------------------------------------------------------------------------- */

static void note_time(struct timing *timing, const struct stopwatch *watch, uint64_t pause_ns)
{
	uint64_t since_ns = FLAG_READ(crowd->since_ns), starved;
	uint64_t took_ns = stopwatch_stop(watch, since_ns, &starved);

	took_ns = took_ns > pause_ns ? took_ns - pause_ns : 0;
	if (timing->since_ns != since_ns) {
		__atomic_store_n(&timing->longest_ns, 0, __ATOMIC_SEQ_CST);
		__atomic_store_n(&timing->starved_ns, 0, __ATOMIC_SEQ_CST);
		__atomic_store_n(&timing->since_ns, since_ns, __ATOMIC_SEQ_CST);
	}
	if (took_ns > timing->longest_ns)
		__atomic_store_n(&timing->longest_ns, took_ns, __ATOMIC_SEQ_CST);
	if (starved > timing->starved_ns)
		__atomic_store_n(&timing->starved_ns, starved, __ATOMIC_SEQ_CST);
}

#define CONTROL_PAUSE_US 500

/* Sleeps, stores to a page of a file, locks a byte of it: what the others would wait for if there
 * were no region. */
static void control(void *arg)
{
	char path[128];
	char *page;
	int fd;

	(void)arg;
	snprintf(path, sizeof(path), "%s.control", crowd->path);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && ftruncate(fd, 4096) == 0 && unlink(path) == 0);
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(page != MAP_FAILED);
	while (!FLAG_READ(crowd->finish)) {
		struct stopwatch watch = stopwatch_start();

		usleep(CONTROL_PAUSE_US);
		__atomic_add_fetch((uint64_t *)(void *)page, 1, __ATOMIC_SEQ_CST);
		CHECK(sys_lock_byte(fd, 0) == 0 && sys_unlock_byte(fd, 0) == 0);
		note_time(&crowd->control, &watch, CONTROL_PAUSE_US * NS_PER_US);
		__atomic_add_fetch(&crowd->control_rounds, 1, __ATOMIC_SEQ_CST);
	}
}

/* -- what is done ----------------------------------------------------------------------------- */

static void hold(const struct worker *self, uint64_t bytes)
{
	uint64_t highest = FLAG_READ(crowd->highest), held;

	if (self == &crowd->workers[DOOMED])
		return;
	held = __atomic_add_fetch(&crowd->held, bytes, __ATOMIC_SEQ_CST);
	while (held > highest &&
	       !__atomic_compare_exchange_n(&crowd->highest, &highest, held, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

static void let_go(const struct worker *self, uint64_t bytes)
{
	if (self != &crowd->workers[DOOMED])
		__atomic_sub_fetch(&crowd->held, bytes, __ATOMIC_SEQ_CST);
}

static void count_refusal(struct worker *self, bool refused)
{
	if (refused)
		__atomic_add_fetch(&self->refused, 1, __ATOMIC_SEQ_CST);
}

/* The limit is such that charges are refused now and then, and so the dead are looked for. */
static void change_one(struct region *region, struct worker *self, uint64_t *held,
		       enum region_class class, unsigned *seed)
{
	uint64_t bytes = 1 + (uint64_t)rand_r(seed) % (4 * MIB);
	int error;

	if (*held) {
		let_go(self, *held);
		region_refund(region, 0, class, *held);
		*held = 0;
		count_refusal(self, region_is_late(region));
		return;
	}
	error = region_charge(region, 0, class, bytes, LIMIT);
	CHECK(error == 0 || error == -EDQUOT || error == -ETIMEDOUT);
	count_refusal(self, error == -ETIMEDOUT);
	if (error)
		return;
	*held = bytes;
	hold(self, bytes);
}

/* Exports something of its own, or gives it up. */
static void change_export(struct region *region, struct worker *self, struct holdings *holdings,
			  unsigned *seed)
{
	struct shared *exported = &holdings->exported;
	uint64_t bytes = 1 + (uint64_t)rand_r(seed) % (4 * MIB);
	int result;

	if (exported->key) {
		__atomic_store_n(&self->offered, 0, __ATOMIC_SEQ_CST);
		let_go(self, exported->bytes);
		result = region_share_withdraw(region, exported->key, REGION_SHARE_AS_EXPORTED);
		CHECK(result == 0 || result == 1);
		if (result == 0)
			region_refund(region, 0, REGION_DATA, exported->bytes);
		exported->key = 0;
	} else if (region_charge(region, 0, REGION_DATA, bytes, LIMIT) == 0) {
		hold(self, bytes);
		exported->key = (uint64_t)getpid() << 32 | ++holdings->exports;
		exported->bytes = bytes;
		CHECK(region_share_export(region, 0, exported->key, bytes) == 0);
		__atomic_store_n(&self->offered, exported->key, __ATOMIC_SEQ_CST);
	}
}

/* Opens what somebody offers, perhaps itself, perhaps one who is dead; or closes it. */
static void change_import(struct region *region, struct shared *imported, unsigned *seed)
{
	struct worker *of = &crowd->workers[(unsigned)rand_r(seed) % WORKERS];
	uint64_t key = __atomic_load_n(&of->offered, __ATOMIC_SEQ_CST), bytes;
	unsigned device;
	int result;

	if (imported->key) {
		region_share_import_end(region, imported->key);
		imported->key = 0;
	} else if (key) {
		result = region_share_import(region, key, &device, &bytes);
		CHECK(result == 0 || (result == 1 && device == 0));
		if (result == 1)
			*imported = (struct shared){key, bytes};
	}
}

static void change_any(struct region *region, struct worker *self, struct holdings *holdings,
		       unsigned *seed)
{
	unsigned kinds = FLAG_READ(crowd->plain) ? HOLDINGS : HOLDINGS + 1 + IMPORTS;
	unsigned which = (unsigned)rand_r(seed) % kinds;

	if (which < HOLDINGS)
		change_one(region, self, &holdings->held[which],
			   (enum region_class)(which % REGION_CLASSES), seed);
	else if (which == HOLDINGS)
		change_export(region, self, holdings, seed);
	else
		change_import(region, &holdings->imported[which - HOLDINGS - 1], seed);
	CHECK(region_used(region, 0) <= LIMIT);
}

static void stand_still(struct region *region, struct worker *self, const struct holdings *holdings)
{
	while (region_is_late(region)) /* the next change makes what could not be made then */
		CHECK(region_charge(region, 0, REGION_DATA, 0, 0) == 0);
	self->held = 0;
	for (unsigned i = 0; i < HOLDINGS; i++)
		self->held += holdings->held[i];
	self->shared[0] = holdings->exported;
	memcpy(self->shared + 1, holdings->imported, sizeof(holdings->imported));
	FLAG_SET(self->frozen);
	while (FLAG_READ(crowd->freeze))
		usleep(100);
	__atomic_store_n(&self->frozen, 0, __ATOMIC_SEQ_CST);
}

static void give_all_back(struct region *region, struct holdings *holdings)
{
	for (unsigned which = 0; which < HOLDINGS; which++)
		region_refund(region, 0, (enum region_class)(which % REGION_CLASSES),
			      holdings->held[which]);
	region_close(region);
}

/* Comes to the region; asks again for as long as somebody living keeps it. */
static void come(struct worker *self, const struct region_setup *setup, struct region *ret_region)
{
	struct fault fault;
	int error;

	FLAG_SET(self->opening);
	while ((error = region_open(crowd->path, setup, ret_region, &fault)) == -ETIMEDOUT)
		count_refusal(self, true);
	if (error)
		fprintf(stderr, "%s\n", fault.text);
	CHECK(error == 0);
	while ((error = region_claim(ret_region, &fault)) == -ETIMEDOUT)
		count_refusal(self, true);
	CHECK(error == 0);
}

/* One of the others. */
static void work(void *arg)
{
	struct worker *self = arg;
	struct region_setup setup = setup_of(LIMIT);
	struct region region = REGION_CLOSED;
	struct holdings holdings = {{0}, {0, 0}, {{0, 0}}, 0};
	struct stopwatch watch = stopwatch_start();
	unsigned seed = (unsigned)getpid();

	region_step_hook = others_hook;
	come(self, &setup, &region);
	note_time(&self->timing, &watch, 0);
	while (!FLAG_READ(crowd->finish)) {
		watch = stopwatch_start();
		change_any(&region, self, &holdings, &seed);
		note_time(&self->timing, &watch, 0);
		__atomic_add_fetch(&self->operations, 1, __ATOMIC_SEQ_CST);
		if (FLAG_READ(crowd->freeze))
			stand_still(&region, self, &holdings);
		if (!FLAG_READ(crowd->busy))
			usleep((unsigned)rand_r(&seed) % 500);
	}
	give_all_back(&region, &holdings);
}

/* -- the crowd -------------------------------------------------------------------------------- */

static void crowd_start_worker(unsigned i)
{
	memset(&crowd->workers[i], 0, sizeof(crowd->workers[i]));
	crowd->workers[i].pid = spawn(work, &crowd->workers[i]);
}

static void crowd_start_others(void)
{
	for (unsigned i = 0; i < OTHERS; i++)
		crowd_start_worker(i);
}

/* An empty one. */
static void crowd_prepare(const struct place *place)
{
	crowd = crowd ? crowd : shared_memory(sizeof(*crowd));
	memset(crowd, 0, sizeof(*crowd));
	strcpy(crowd->path, place->path);
	unlink(crowd->path);
	crowd->control_pid = spawn(control, NULL);
}

/* Whoever still lives: also when a test has failed, so that none of them is in the next one. */
static void crowd_kill(void)
{
	for (unsigned i = 0; crowd && i < WORKERS; i++)
		if (crowd->workers[i].pid > 0)
			kill_child(crowd->workers[i].pid);
	if (crowd && crowd->control_pid > 0)
		kill_child(crowd->control_pid);
	if (crowd)
		memset(crowd, 0, sizeof(*crowd));
}
