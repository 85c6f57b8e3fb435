/*
 * Several processes on one GPU: each sees what the others hold, nobody gets what another has, and
 * the dead give everything back.
 */
#include "selftest.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "departure.h"

static void hold(void *argument)
{
	CUdeviceptr p;

	selftest_context();
	CHECK_OK(cuMemAlloc_v2(&p, *(size_t *)argument));
}

/* More than is left with the first one alive, but not with it dead. */
static void hold_after_death(void *argument)
{
	struct selftest_child *first = argument;
	CUdeviceptr p;

	selftest_context();
	CHECK_EQUAL(cuMemAlloc_v2(&p, 5 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(!kill(first->pid, SIGKILL));
	/* Our parent, not we, can wait for it; its memory comes back when the kernel is done with
	 * it. */
	for (int i = 0; cuMemAlloc_v2(&p, 5 * GIB); i++) {
		CHECK(i < 10000);
		usleep(1000);
	}
}

static void test_totals(void)
{
	size_t bytes[2] = {3 * GIB, GIB};
	struct selftest_child a = selftest_child_start(hold, &bytes[0]);
	struct selftest_child b = selftest_child_start(hold, &bytes[1]);

	CHECK_EQUAL(selftest_process_bytes(0, a.pid), CONTEXT + 3 * GIB);
	CHECK_EQUAL(selftest_process_bytes(0, b.pid), CONTEXT + GIB);
	CHECK_EQUAL(selftest_used(0), 2 * (CONTEXT + FIRST) + 4 * GIB);
	CHECK_EQUAL(selftest_used(1), 0);
	selftest_child_kill(&b);
	CHECK_EQUAL(selftest_process_bytes(0, b.pid), -1);
	CHECK_EQUAL(selftest_used(0), CONTEXT + FIRST + 3 * GIB);
	selftest_child_end(&a);
	CHECK_EQUAL(selftest_used(0), 0);
}

static void test_death_makes_room(void)
{
	size_t bytes = 4 * GIB;
	struct selftest_child a = selftest_child_start(hold, &bytes), b;

	b = selftest_child_start(hold_after_death, &a);
	selftest_child_kill(&a);
	CHECK_EQUAL(selftest_used(0), CONTEXT + FIRST + 5 * GIB);
	selftest_child_end(&b);
	CHECK_EQUAL(selftest_used(0), 0);
}

enum {
	PROCESSES = 8,
	THREADS = 4,
	LIVE = 24,
	STEPS = 4000,
};

static void *allocate_at_random(void *argument)
{
	CUdeviceptr live[LIVE] = {0};
	unsigned seed = *(unsigned *)argument ^ (unsigned)getpid();
	CUcontext context;

	CHECK_OK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK_OK(cuCtxSetCurrent(context));
	for (int step = 0; step < STEPS; step++) {
		unsigned i = (unsigned)rand_r(&seed) % LIVE;
		if (live[i]) {
			CHECK_OK(cuMemFree_v2(live[i]));
			live[i] = 0;
			continue;
		}
		size_t bytes = 1 + (size_t)rand_r(&seed) % ((size_t)1 << rand_r(&seed) % 27);
		CUresult result = cuMemAlloc_v2(&live[i], bytes);
		if (result)
			CHECK_EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
	}
	for (unsigned i = 0; i < LIVE; i++)
		CHECK_OK(cuMemFree_v2(live[i]));
	CHECK_OK(cuDevicePrimaryCtxRelease_v2(0));
	return NULL;
}

static void crowd(void *argument)
{
	pthread_t threads[THREADS];
	unsigned seeds[THREADS];

	(void)argument;
	CHECK_OK(cuInit(0));
	for (unsigned i = 0; i < THREADS; i++) {
		seeds[i] = i;
		CHECK(!pthread_create(&threads[i], NULL, allocate_at_random, &seeds[i]));
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* The last one is killed at some time on its way, as often as the others take. */
static void test_crowd(void)
{
	pid_t pids[PROCESSES];
	int status;

	for (int i = 0; i < PROCESSES; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			crowd(NULL);
			_exit(0);
		}
	}
	for (unsigned i = 0; i < 30; i++) {
		int departure = departure_prepare();
		pid_t victim = fork();
		if (!victim) {
			departure_begin(departure);
			crowd(NULL);
			_exit(0);
		}
		usleep(3000 + i * 700);
		kill(victim, SIGKILL);
		waitpid(victim, &status, 0);
		departure_wait(departure);
		CHECK(selftest_used(0) <= 8 * GIB);
		CHECK_EQUAL(selftest_process_bytes(0, victim), -1);
	}
	for (int i = 0; i < PROCESSES; i++) {
		CHECK_EQUAL(waitpid(pids[i], &status, 0), pids[i]);
		CHECK_EQUAL(status, 0);
	}
	CHECK_EQUAL(selftest_used(0), 0);
}

enum {
	GRABBERS = 4,
	SCARCE = 16, /* granules that they fight for */
};

/* Takes whatever it can, and gives one back when it can take no more. */
static void grab(pthread_barrier_t *ready)
{
	CUdeviceptr pieces[SCARCE];
	int count = 0;

	selftest_context();
	pthread_barrier_wait(ready); /* or they would take the room for a context */
	for (int step = 0; step < 30000; step++) {
		if (count < SCARCE && !cuMemAlloc_v2(&pieces[count], 2 * MIB))
			count++;
		else if (count)
			CHECK_OK(cuMemFree_v2(pieces[--count]));
	}
}

/* Nobody gets what another has just got. */
static void test_limit(void)
{
	size_t most = 8 * GIB - (GRABBERS + 1) * (CONTEXT + FIRST) - SCARCE * 2 * MIB;
	struct selftest_child holder = selftest_child_start(hold, &most);
	pthread_barrier_t *ready = mmap(NULL, sizeof *ready, PROT_READ | PROT_WRITE,
					MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t shared;
	int status, running = GRABBERS;

	CHECK(ready != MAP_FAILED);
	pthread_barrierattr_init(&shared);
	pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(ready, &shared, GRABBERS);
	for (int i = 0; i < GRABBERS; i++) {
		if (!fork()) {
			grab(ready);
			_exit(0);
		}
	}
	while (running) {
		CHECK(selftest_used(0) >= most); /* and it looks whether it is more than there is */
		pid_t ended = waitpid(-1, &status, WNOHANG);
		CHECK_EQUAL(ended ? status : 0, 0);
		running -= ended > 0;
	}
	selftest_child_end(&holder);
	CHECK_EQUAL(selftest_used(0), 0);
}

static _Atomic bool *let_go; /* in shared memory */

/* Has the state file locked for a while, as a process is that is at work in it. */
static void lock_for_a_while(void *argument)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
	int fd = open(getenv("VGPU_SIM_STATE"), O_RDWR);

	(void)argument;
	CHECK(fd >= 0);
	CHECK(!fcntl(fd, F_OFD_SETLKW, &lock));
	if (!fork()) { /* it has the lock as long as one of us has the descriptor */
		usleep(150000);
		*let_go = true;
		_exit(0);
	}
	close(fd);
}

/* Whoever wants to look or to take waits until the other has done; its death ends the wait. */
static void test_lock(void)
{
	nvmlDevice_t device;
	nvmlMemory_t memory;

	let_go = mmap(NULL, sizeof *let_go, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	CHECK(let_go != MAP_FAILED);
	CHECK_OK(nvmlInit_v2());
	CHECK_OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
	struct selftest_child locker = selftest_child_start(lock_for_a_while, NULL);
	CHECK_OK(nvmlDeviceGetMemoryInfo(device, &memory));
	CHECK(*let_go);
	selftest_child_end(&locker);
	CHECK_OK(nvmlShutdown());
}

int main(void)
{
	selftest_begin("8G,8G");
	test_lock();
	test_totals();
	test_death_makes_room();
	test_limit();
	test_crowd();
	return 0;
}
