/*
 * Two containers of a pod with one region, as HAMi mounts it: in each a process that is pid 1, with
 * threads of the same numbers, at one quota. They are killed in turn, and a monitor on the host,
 * which knows the layout and nothing else, reads all the while.
 */
#include "cuda_api.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "monitor.h"
#include "spaces.h"

#define TENANTS  2
#define THREADS  3
#define HELD_MAX 4
#define SHARED   (512 * MIB) /* what the quota leaves for data */
#define QUOTA    ((TENANTS + 1) * (CONTEXT + HIDDEN) + SHARED)

/* The simulated driver's own for the first context, in no process's figure. */
#define UNSEEN (9 * MIB)

/* In shared memory, of one tenant: written by it, but for freeze and modest. */
struct tenant {
	uint32_t freeze, frozen; /* threads that stand still */
	uint32_t modest;         /* it leaves room for another's context */
	uint32_t numbered;       /* threads that have stored their number */
	uint64_t operations, refusals;
	uint64_t held[THREADS]; /* while they do */
	int numbers[THREADS];   /* gettid */
	CUcontext context;
};

static struct tenant *tenants;

#define SEE(field)        __atomic_load_n(&(field), __ATOMIC_SEQ_CST)
#define SET(field, value) __atomic_store_n(&(field), value, __ATOMIC_SEQ_CST)
#define ADD(field, value) __atomic_add_fetch(&(field), value, __ATOMIC_SEQ_CST)

static void *shared_memory(size_t size)
{
	void *addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(addr != MAP_FAILED);
	return addr;
}

/* -- a tenant --------------------------------------------------------------------------------- */

static void stand_still(struct tenant *own, unsigned thread, const uint64_t sizes[HELD_MAX])
{
	own->held[thread] = 0;
	for (unsigned i = 0; i < HELD_MAX; i++)
		own->held[thread] += sizes[i];
	ADD(own->frozen, 1);
	while (SEE(own->freeze))
		usleep(100);
	ADD(own->frozen, -1u);
}

struct work {
	struct tenant *tenant;
	unsigned thread;
};

/* Sizes of whole granules: what is charged is then what was asked for. */
static void *work(void *arg)
{
	struct work own = *(struct work *)arg;
	unsigned seed = (unsigned)now_ms() * 7 + own.thread;
	CUdeviceptr held[HELD_MAX] = {0};
	uint64_t sizes[HELD_MAX] = {0};

	own.tenant->numbers[own.thread] = (int)syscall(SYS_gettid);
	ADD(own.tenant->numbered, 1);
	CHECK_OK(cuCtxSetCurrent(own.tenant->context));
	for (;; ADD(own.tenant->operations, 1)) {
		unsigned i = (unsigned)rand_r(&seed) % HELD_MAX;

		if (SEE(own.tenant->freeze))
			stand_still(own.tenant, own.thread, sizes);
		if (held[i]) {
			give(held[i]);
			held[i] = 0;
			sizes[i] = 0;
			continue;
		}
		sizes[i] = SEE(own.tenant->modest) ? GRANULE
						   : (1 + (uint64_t)rand_r(&seed) % 48) * GRANULE;
		if (cuMemAlloc_v2(&held[i], sizes[i]) != CUDA_SUCCESS) {
			held[i] = 0;
			sizes[i] = 0;
			ADD(own.tenant->refusals, 1);
		}
	}
	return NULL;
}

/* Its first context, as soon as those before it have made room, with its cost settled. */
static CUcontext start_when_there_is_room(void)
{
	uint64_t began = now_ms();
	CUcontext context;
	CUdeviceptr address;

	CHECK_OK(cuInit(0));
	while (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) {
		CHECK(now_ms() - began < WAIT_S * 1000);
		usleep(200);
	}
	CHECK_OK(cuCtxSetCurrent(context));
	while (cuMemAlloc_v2(&address, GRANULE) != CUDA_SUCCESS)
		CHECK(now_ms() - began < WAIT_S * 1000);
	give(address);
	return context;
}

static void tenant(int wire)
{
	struct tenant *own = &tenants[hear(wire)];
	static struct work works[THREADS];
	pthread_t threads[THREADS];

	CHECK_EQUAL(getpid(), 1);
	own->context = start_when_there_is_room();
	for (unsigned i = 0; i < THREADS; i++) {
		works[i] = (struct work){own, i};
		CHECK(pthread_create(&threads[i], NULL, work, &works[i]) == 0);
	}
	while (SEE(own->numbered) < THREADS)
		usleep(100);
	tell(wire, 1);
	pthread_join(threads[0], NULL);
}

static struct member tenant_start(unsigned which)
{
	struct member member;

	for (unsigned i = 0; i < TENANTS; i++)
		SET(tenants[i].modest, 1);
	memset(&tenants[which], 0, sizeof(tenants[which]));
	space_begin();
	member = member_start(tenant);
	space_end();
	member_ask(&member, which);
	for (unsigned i = 0; i < TENANTS; i++)
		SET(tenants[i].modest, 0);
	return member;
}

/* -- from outside ----------------------------------------------------------------------------- */

static void wait_for(const uint64_t *value, uint64_t at_least)
{
	uint64_t began = now_ms();

	while (__atomic_load_n(value, __ATOMIC_SEQ_CST) < at_least) {
		CHECK(now_ms() - began < WAIT_S * 1000);
		usleep(100);
	}
}

static void go_on(unsigned which)
{
	wait_for(&tenants[which].operations, SEE(tenants[which].operations) + 30);
}

/* What the tenant's slot should hold besides its context, all threads standing still. */
static uint64_t freeze(unsigned which)
{
	uint64_t held = 0, began = now_ms();

	SET(tenants[which].freeze, 1);
	while (SEE(tenants[which].frozen) < THREADS) {
		CHECK(now_ms() - began < WAIT_S * 1000);
		usleep(100);
	}
	for (unsigned i = 0; i < THREADS; i++)
		held += tenants[which].held[i];
	return held;
}

static void thaw(unsigned which)
{
	SET(tenants[which].freeze, 0);
	while (SEE(tenants[which].frozen))
		usleep(100);
}

/* The other one has been killed: this one alone is there, with what it holds. */
static void alone(unsigned which, pid_t pid)
{
	uint64_t held;

	go_on(which);
	held = freeze(which);
	CHECK_SOON_EQUAL(ledger_reap(), 1);
	CHECK_EQUAL(outside_of(0, pid), CONTEXT + held);
	CHECK_SOON_EQUAL(outside_used(0), CONTEXT + UNSEEN + held);
	CHECK_EQUAL(ledger_used(0), CONTEXT + HIDDEN + held);
	thaw(which);
}

static void set_quota(void)
{
	char limit[32];

	snprintf(limit, sizeof(limit), "%llu", (unsigned long long)QUOTA);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	tenants = shared_memory(TENANTS * sizeof(*tenants));
}

#define ROUNDS 100

TEST(killed_in_turn)
{
	struct member members[TENANTS];
	unsigned seed = 3;
	uint64_t refusals = 0;

	set_quota();
	for (unsigned i = 0; i < TENANTS; i++)
		members[i] = tenant_start(i);
	outside_peak_begin(0);
	for (unsigned round = 0; round < ROUNDS || refusals <= 10; round++) {
		unsigned victim = round % TENANTS, other = (round + 1) % TENANTS;

		CHECK(round < 10 * ROUNDS); /* they are at the limit now and then */
		for (unsigned i = 0; i < THREADS; i++)
			CHECK_EQUAL(tenants[0].numbers[i], tenants[1].numbers[i]);
		go_on(victim);
		usleep((unsigned)rand_r(&seed) % 4000);
		refusals += SEE(tenants[victim].refusals);
		member_kill(&members[victim]);
		if (round % 10 < 8) { /* or the next one comes at once */
			CHECK_AT_MOST(outside_peak(0), QUOTA + TENANTS * GRANULE);
			alone(other, members[other].pid);
			outside_peak_begin(0);
		}
		members[victim] = tenant_start(victim);
	}
	CHECK_AT_MOST(outside_peak(0), QUOTA + TENANTS * GRANULE);
	for (unsigned i = 0; i < TENANTS; i++)
		member_kill(&members[i]);
	CHECK_SOON_EQUAL(ledger_reap(), 0);
	CHECK_EQUAL(ledger_used(0), 0);
	CHECK_SOON_EQUAL(outside_used(0), 0);
}

/* -- with a monitor ---------------------------------------------------------------------------- */

static void on_the_host(int wire)
{
	cuda_start(0);
	take(6 * MIB);
	say_ready(wire);
}

/* The monitor's figures of one that stands still. */
static void shown(const struct monitor_slot *slot, int pid, int hostpid, uint64_t held)
{
	CHECK_EQUAL(slot->pid, pid);
	CHECK_EQUAL(slot->hostpid, hostpid);
	CHECK_EQUAL(slot->used.context, CONTEXT);
	CHECK_EQUAL(slot->used.data, held);
	CHECK_EQUAL(slot->used.module, 0);
	CHECK_EQUAL(slot->used.total, CONTEXT + HIDDEN + held);
}

static const struct monitor_slot *with_pid(const struct monitor_slot *slots, unsigned count,
					   int pid, uint64_t held)
{
	for (unsigned i = 0; i < count; i++)
		if (slots[i].pid == pid && slots[i].used.data == held)
			return &slots[i];
	check_failed(__FILE__, __LINE__, "the monitor does not see a process");
}

/* Everybody stands still. Of the dead nobody is left, once somebody has reaped. */
static void compare(const struct member members[TENANTS], pid_t host)
{
	struct monitor_slot slots[VGPU_SLOTS_MAX];
	uint64_t held[TENANTS];
	unsigned count;

	for (unsigned i = 0; i < TENANTS; i++)
		held[i] = freeze(i);
	CHECK_SOON_EQUAL(ledger_reap(), TENANTS + 1);
	count = monitor_look(slots);
	CHECK_EQUAL(count, TENANTS + 1);
	for (unsigned i = 0; i < TENANTS; i++) {
		shown(with_pid(slots, count, 1, held[i]), 1, 0, held[i]);
		CHECK_EQUAL(outside_of(0, members[i].pid), CONTEXT + held[i]);
	}
	shown(with_pid(slots, count, host, 6 * MIB), host, space_is_host() ? host : 0, 6 * MIB);
	for (unsigned i = 0; i < TENANTS; i++)
		thaw(i);
}

TEST(monitored)
{
	struct member members[TENANTS], host;
	struct monitor_findings findings;

	set_quota();
	monitor_start(scene_path("slice.cache")); /* there is none yet */
	host = member_begin(on_the_host);
	monitor_knows(host.pid, space_is_host() ? host.pid : 0);
	for (unsigned i = 0; i < TENANTS; i++)
		members[i] = tenant_start(i);
	for (unsigned round = 0; round < 30; round++) {
		unsigned victim = round % TENANTS;

		go_on(victim);
		if (round % 5 == 0)
			compare(members, host.pid);
		member_kill(&members[victim]);
		members[victim] = tenant_start(victim);
	}
	findings = monitor_end();
	printf("monitored: %llu looks at slots, %llu of them at a change in progress\n",
	       (unsigned long long)findings.looks, (unsigned long long)findings.unsteady);
	CHECK(findings.looks > 1000);
	CHECK_EQUAL(findings.low_totals, 0);
	CHECK_EQUAL(findings.wrong_hostpids, 0);
	for (unsigned i = 0; i < TENANTS; i++)
		member_kill(&members[i]);
	member_kill(&host);
}

/* -- what a tenant sees of itself -------------------------------------------------------------- */

static void looks_at_itself(int wire)
{
	size_t available, total;
	uint64_t bytes = hear(wire);

	cuda_start(0);
	take(bytes);
	tell(wire, 1);
	hear(wire); /* the other is there as well */
	CHECK_EQUAL(outside_of(0, 1), CONTEXT + bytes);
	CHECK_OK(cuMemGetInfo_v2(&available, &total));
	CHECK_EQUAL(total, QUOTA);
	CHECK_EQUAL(total - available, 2 * (CONTEXT + HIDDEN) + 96 * MIB);
	say_ready(wire);
}

/* NVML asked from within says pid 1 of each, and means itself: nobody's books are compared with
 * the other's figure. */
TEST(each_its_own)
{
	struct member members[TENANTS];

	set_quota();
	for (uint64_t i = 0; i < TENANTS; i++) {
		space_begin();
		members[i] = member_start(looks_at_itself);
		space_end();
		member_ask(&members[i], (i + 1) * 32 * MIB);
	}
	for (unsigned turn = 0; turn < TENANTS; turn++)
		member_ask(&members[turn], 1);
	for (unsigned i = 0; i < TENANTS; i++) {
		member_finish(&members[i]);
	}
	CHECK_SOON_EQUAL(ledger_reap(), 0);
}

int main(int argc, char **argv)
{
	return spaces_main(harness_main, argc, argv);
}
