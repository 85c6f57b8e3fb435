/*
 * Signals: storms of the application's own; a process that is stopped, wherever it is; one whose
 * cgroup is frozen.
 */
#include "life.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 2
#define THREADS   3

/* -- storms ------------------------------------------------------------------------------------ */

static volatile sig_atomic_t signals_seen;

static void count_signal(int number)
{
	(void)number;
	signals_seen++;
}

static void on_signal(int number, int flags)
{
	struct sigaction action = {.sa_handler = count_signal, .sa_flags = flags};

	CHECK_EQUAL(sigaction(number, &action, NULL), 0);
}

static void block_signals(int how)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigaddset(&set, SIGUSR1);
	CHECK_EQUAL(pthread_sigmask(how, &set, NULL), 0);
}

/* Blocks of this thread's own, so many that the quota is full, and freed and taken again. */
static void *churn(void *context)
{
	CUdeviceptr held[8] = {0};
	unsigned seed = (unsigned)(uintptr_t)&seed;

	block_signals(SIG_UNBLOCK);
	CHECK_OK(cuCtxSetCurrent(context));
	while (!__atomic_load_n(&stop_allocating, __ATOMIC_RELAXED)) {
		unsigned i = (unsigned)rand_r(&seed) % 8;
		CUresult result;

		if (held[i])
			give(held[i]);
		held[i] = 0;
		result = cuMemAlloc_v2(&held[i], 1 + (unsigned)rand_r(&seed) % (64 * MIB));
		if (result != CUDA_SUCCESS)
			CHECK_EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
	}
	for (unsigned i = 0; i < 8; i++)
		if (held[i])
			give(held[i]);
	return NULL;
}

/* Handlers without SA_RESTART: every system call that can be cut short is. */
static void stormy(int wire)
{
	struct itimerval every_ms = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
	pthread_t threads[THREADS];
	CUcontext context;

	on_signal(SIGALRM, 0);
	on_signal(SIGUSR1, SA_RESTART);
	block_signals(SIG_BLOCK); /* here: the threads get them */
	context = cuda_start(0);
	give(take(1));
	tell(wire, 1);
	hear(wire); /* all have their contexts: the slice can be filled */
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, churn, context) == 0);
	CHECK_EQUAL(setitimer(ITIMER_REAL, &every_ms, NULL), 0);
	for (unsigned round = 0; round < 1500 || signals_seen <= 500; round++) {
		CHECK(round < 100000);
		pthread_kill(threads[round % THREADS], SIGUSR1);
		usleep(500);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	__atomic_store_n(&stop_allocating, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT);
	CHECK_EQUAL(ledger_own(0).data, 0);
	say_ready(wire);
}

TEST(storms)
{
	struct member members[PROCESSES];

	set_quota(PROCESSES, 600 * MIB);
	outside_peak_begin(0);
	for (unsigned i = 0; i < PROCESSES; i++)
		members[i] = member_start(stormy);
	for (unsigned i = 0; i < PROCESSES; i++)
		hear(members[i].wire);
	for (unsigned i = 0; i < PROCESSES; i++)
		tell(members[i].wire, 1);
	for (unsigned i = 0; i < PROCESSES; i++)
		hear(members[i].wire);
	CHECK_AT_MOST(outside_peak(0),
		      PROCESSES * (CONTEXT + HIDDEN) + 600 * MIB + PROCESSES * GRANULE);
	CHECK_SOON_EQUAL(ledger_reap(), PROCESSES);
	for (unsigned i = 0; i < PROCESSES; i++)
		member_finish(&members[i]);
	assert_nobody();
}

/* -- stopped ----------------------------------------------------------------------------------- */

/* Allocates and frees without end. */
static void busy(int wire)
{
	CUcontext context = cuda_start(0);

	give(take(1));
	tell(wire, 1);
	allocate_and_free(context);
}

/* The same with a driver that has nothing to give: nearly all of its time is the region's. */
static void busy_with_region(int wire)
{
	cuda_start(0);
	give(take(1));
	tell(wire, 1);
	for (;;) {
		CUdeviceptr address;

		CHECK_EQUAL(cuMemAllocManaged(&address, 128 * MIB, 1), CUDA_ERROR_OUT_OF_MEMORY);
	}
}

static void stop(pid_t pid)
{
	int status;

	CHECK_EQUAL(kill(pid, SIGSTOP), 0);
	CHECK(waitpid(pid, &status, WUNTRACED) == pid);
	CHECK(WIFSTOPPED(status));
}

static void go_on(pid_t pid)
{
	CHECK_EQUAL(kill(pid, SIGCONT), 0);
}

/* At random moments, for a little while: the others wait or go on, and all is kept. */
TEST(stopped_now_and_then)
{
	struct member members[3];
	unsigned seed = 11;

	set_quota(3, 600 * MIB);
	outside_peak_begin(0);
	for (unsigned i = 0; i < 3; i++)
		members[i] = member_begin(busy);
	for (unsigned round = 0; round < 100; round++) {
		pid_t pid = members[round % 3].pid;

		stop(pid);
		usleep((unsigned)rand_r(&seed) % 10000);
		go_on(pid);
		usleep((unsigned)rand_r(&seed) % 5000);
	}
	CHECK_AT_MOST(outside_peak(0), 3 * (CONTEXT + HIDDEN) + 600 * MIB + 3 * GRANULE);
	for (unsigned i = 0; i < 3; i++)
		member_kill(&members[i]);
	assert_nobody();
}

static bool holds_lock(pid_t pid)
{
	uint32_t word = __atomic_load_n(&ledger()->own.lock, __ATOMIC_ACQUIRE);

	return word && (int)(word & VGPU_LOCK_SLOT_MASK) - 1 == ledger_slot(pid);
}

/* Stops it in the midst of a change of the region. */
static bool stop_with_lock(pid_t pid)
{
	uint64_t began = now_ms();
	unsigned seed = 12;

	while (now_ms() - began < WAIT_S * 1000 / 2) {
		stop(pid);
		if (holds_lock(pid))
			return true;
		go_on(pid);
		usleep((unsigned)rand_r(&seed) % 50);
	}
	return false;
}

#define PATIENCE_MS 2000

/* A program that starts meanwhile: it waits as long, and is refused as a whole. */
TEST_ROLE(start_in_vain)
{
	uint64_t began = now_ms();

	(void)argc;
	(void)argv;
	CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
	CHECK(now_ms() - began >= PATIENCE_MS - 100);
}

static void run_in_vain(void)
{
	role_exec("start_in_vain", NULL);
}

static int told; /* a file in the place of stderr */
static int real_stderr;

static void listen_to_stderr(void)
{
	real_stderr = dup(STDERR_FILENO);
	told = open(scene_path("told"), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
	CHECK(told >= 0 && dup2(told, STDERR_FILENO) == STDERR_FILENO);
}

static void stderr_said(const char *what)
{
	char text[1024] = "";

	CHECK(pread(told, text, sizeof(text) - 1, 0) >= 0);
	CHECK(dup2(real_stderr, STDERR_FILENO) == STDERR_FILENO);
	close(real_stderr);
	close(told);
	if (lines_in(text) != 1 || !strstr(text, what))
		fprintf(stderr, "%s", text);
	CHECK_EQUAL(lines_in(text), 1);
	CHECK(strncmp(text, "vgpu: ", 6) == 0);
	CHECK(strstr(text, what));
}

/* Where it holds the region's lock: others wait for two seconds, and are then refused with a line;
 * when it goes on, so do they. */
TEST(stopped_with_the_lock)
{
	struct member member;
	CUdeviceptr held;
	struct said said;
	uint64_t began;

	set_quota(3, 600 * MIB);
	env_set("VGPU_SIM_FAULTS", "cuMemAllocManaged=2");
	member = member_begin(busy_with_region);
	env_set("VGPU_SIM_FAULTS", NULL);
	cuda_start(0);
	held = take(100 * MIB);
	if (!stop_with_lock(member.pid)) {
		printf("stopped_with_the_lock: never caught\n");
		member_kill(&member);
		return;
	}
	listen_to_stderr();
	began = now_ms();
	refused(10 * MIB);
	CHECK(now_ms() - began >= PATIENCE_MS - 100);
	stderr_said("stopped; continue or kill it");
	give(held); /* takes effect later, and does not fail */
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT);
	said = member_listen(run_in_vain);
	fputs(said.status ? said.err : "", stderr);
	CHECK_EQUAL(said.status, 0);
	CHECK_EQUAL(lines_in(said.err), 1);
	CHECK(strstr(said.err, "is it stopped? Continue or end it"));
	go_on(member.pid);
	/* What was freed late counts once: there is room for a third context and 600 MiB. */
	refused(CONTEXT + HIDDEN + 650 * MIB);
	give(take_soon(CONTEXT + HIDDEN + 590 * MIB));
	CHECK(stop_with_lock(member.pid));
	CHECK_EQUAL(kill(member.pid, SIGKILL), 0); /* stopped, and killed in there */
	give(take_soon(500 * MIB));
	CHECK_EQUAL(member_wait(&member), SIGKILL);
	assert_alone_with(0);
}

/* -- frozen ------------------------------------------------------------------------------------ */

static char cgroup[512]; /* one of our own, under wherever version 2 is mounted */

static bool write_text(const char *name, const char *text)
{
	char path[600];
	int fd;
	bool done;

	snprintf(path, sizeof(path), "%s/%s", cgroup, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return done;
}

static bool make_cgroup(void)
{
	FILE *mounts = fopen("/proc/self/mounts", "r");
	char line[1024], at[256], kind[32], freezer[600];
	bool made = false;

	while (!made && mounts && fgets(line, sizeof(line), mounts)) {
		if (sscanf(line, "%*s %255s %31s", at, kind) != 2 || strcmp(kind, "cgroup2") != 0)
			continue;
		snprintf(cgroup, sizeof(cgroup), "%s/vgpu-test-%d", at, getpid());
		made = mkdir(cgroup, 0755) == 0;
	}
	if (mounts)
		fclose(mounts);
	snprintf(freezer, sizeof(freezer), "%s/cgroup.freeze", cgroup);
	if (made && access(freezer, W_OK) == 0)
		return true;
	if (made)
		rmdir(cgroup);
	return false;
}

static void move_into_cgroup(pid_t pid)
{
	char text[32];

	snprintf(text, sizeof(text), "%d", pid);
	CHECK(write_text("cgroup.procs", text));
}

static bool is_frozen(void)
{
	char path[600], text[256] = "";
	FILE *events;
	size_t len;

	snprintf(path, sizeof(path), "%s/cgroup.events", cgroup);
	events = fopen(path, "r");
	CHECK(events);
	len = fread(text, 1, sizeof(text) - 1, events);
	text[len] = '\0';
	fclose(events);
	return strstr(text, "frozen 1") != NULL;
}

static void holder(int wire)
{
	cuda_start(0);
	take(300 * MIB);
	say_ready(wire);
	give(take(100 * MIB));
	say_ready(wire);
}

static void set_up_frozen(void)
{
	scene_fixture.set_up();
	if (!make_cgroup())
		cgroup[0] = '\0';
}

static void tear_down_frozen(void)
{
	write_text("cgroup.freeze", "0");
	rmdir(cgroup);
	scene_fixture.tear_down();
}

static const struct harness_fixture frozen_fixture = {.set_up = set_up_frozen,
						      .tear_down = tear_down_frozen};
#undef TEST_FIXTURE
#define TEST_FIXTURE &frozen_fixture

/* Frozen, it holds what it holds; the others go on beside it; thawed, so does it. */
TEST(frozen)
{
	struct member member;
	uint64_t began = now_ms();

	if (!cgroup[0])
		SKIP("no cgroup of version 2 with a freezer can be made here");
	set_quota(2, 500 * MIB);
	member = member_start(holder);
	move_into_cgroup(member.pid);
	hear(member.wire);
	cuda_start(0);
	CHECK(write_text("cgroup.freeze", "1"));
	while (!is_frozen()) {
		CHECK(now_ms() - began < WAIT_S * 1000);
		sleep_ms(1);
	}
	for (unsigned round = 0; round < 20; round++) {
		give(take(190 * MIB));
		refused(300 * MIB);
	}
	CHECK_SOON_EQUAL(ledger_reap(), 2);
	CHECK(write_text("cgroup.freeze", "0"));
	member_ask(&member, 1);
	CHECK(write_text("cgroup.freeze", "1"));
	member_kill(&member); /* a frozen process can be killed, and is dead then */
	give(take_soon(490 * MIB));
	assert_alone_with(0);
}
