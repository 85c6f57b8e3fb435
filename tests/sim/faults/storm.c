/*
 * A storm: processes are started, allocate in several ways, and are killed at random moments,
 * sixteen at a time, thousands in all. Nobody hangs, the device never holds more than the quota,
 * and when it is over nothing is left: no slot, no byte, and the slice serves the next at once.
 *
 * Most are forked from this process, which is preloaded and has not touched CUDA; a tenth are
 * programs of their own. By their numbers, some are greedy and fill the quota, some have threads,
 * some share memory, some are stopped for a while, some end by themselves with all that they have,
 * and a few live long enough for it to be seen that they go on.
 *
 *     STORM   how many processes there are; STORM_DEFAULT without it
 */
#include "faulty.h"
#include "kinds.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STORM_DEFAULT 1000
#define AT_ONCE       16
#define LIFE_MS       160 /* at most at first, and on the average half of it */
#define LONG_LIFE_MS  3000
#define HANG_MS       2500
#define STOP_MS       20
#define HELD          12
#define THREADS       2

/* Room for everybody's context and data, but not for the data of the greedy. */
#define QUOTA  (AT_ONCE * CHARGE + 7 * GIB)
#define MODEST (384 * MIB)
#define GREED  (4 * GIB)
#define WAVE   100 /* so many that come one after the other; of three waves one is half greedy */

/* -- what all of them see -----------------------------------------------------------------------
 */

enum call { CALL_INIT, CALL_CONTEXT, CALL_MAKE, CALL_END, CALLS };

static const char *const call_names[] = {"cuInit", "contexts", "allocations", "frees"};

/* In a file, so that programs see it, too. All words are atomic. */
static struct tally {
	struct {
		uint64_t count, refused;
		uint64_t over_100_ms, over_1_s, longest_us;
	} call[CALLS];
	uint64_t with_context, refused_processes; /* how many had one; met a refusal */
	uint64_t opened;                          /* others' memory */
	uint64_t in_call_us[AT_ONCE];             /* since when; 0: in none */
	CUipcMemHandle handle[AT_ONCE];           /* of what was shared last; may be half written */
} * tally;

static void tally_open(void)
{
	int fd = open(scene_path("tally"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *memory;

	CHECK(fd >= 0 && ftruncate(fd, sizeof(*tally)) == 0);
	memory = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(memory != MAP_FAILED);
	close(fd);
	tally = memory;
}

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* -- one of them --------------------------------------------------------------------------------
 */

static struct {
	unsigned number;
	unsigned place; /* of AT_ONCE */
	bool greedy, sharing, threads, hasty, ends;
	CUcontext context;
	uint64_t refusals;
} self;

/* A call is about to begin. The last, where several threads are in one. */
static uint64_t go_in(void)
{
	uint64_t began_us = now_us();

	word_write(&tally->in_call_us[self.place], began_us);
	return began_us;
}

/* It has come back. */
static CUresult come_out(enum call call, uint64_t began_us, CUresult result)
{
	uint64_t us = now_us() - began_us;

	word_write(&tally->in_call_us[self.place], 0);
	word_add(&tally->call[call].count, 1);
	if (us > 100000)
		word_add(&tally->call[call].over_100_ms, 1);
	if (us > 1000000)
		word_add(&tally->call[call].over_1_s, 1);
	word_raise(&tally->call[call].longest_us, us);
	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		if (self.hasty && call == CALL_MAKE)
			return result; /* the driver's own */
		word_add(&tally->call[call].refused, 1);
		if (word_add(&self.refusals, 1) == 1)
			word_add(&tally->refused_processes, 1);
	} else {
		CHECK_EQUAL(result, CUDA_SUCCESS);
	}
	return result;
}

/* One thread's. */
struct held {
	struct thing thing[HELD];
	uint64_t bytes;
	unsigned count;
	unsigned seed;
	CUstream stream;
};

static void end_one(struct held *held)
{
	unsigned i = (unsigned)rand_r(&held->seed) % held->count;
	struct thing thing = held->thing[i];
	uint64_t began_us = go_in();

	held->thing[i] = held->thing[--held->count];
	held->bytes -= thing.bytes;
	CHECK_OK(come_out(CALL_END, began_us, thing_end(&thing, held->stream)));
	if (thing.kind == KIND_ASYNC)
		CHECK_OK(cuStreamSynchronize(held->stream));
}

/* The greedy ones' are big. */
static CUresult make_one(struct held *held)
{
	unsigned most = self.greedy ? 512 : MODEST / HELD / GRANULE;
	uint64_t granules = 1 + (unsigned)rand_r(&held->seed) % most;
	enum kind kind =
		self.hasty ? KIND_MANAGED : (enum kind)((unsigned)rand_r(&held->seed) % KINDS);
	uint64_t began_us = go_in();
	struct thing *thing = &held->thing[held->count];
	CUresult result = come_out(CALL_MAKE, began_us,
				   thing_make(kind, granules * GRANULE, held->stream, thing));

	if (result == CUDA_SUCCESS) {
		held->bytes += thing->bytes;
		held->count++;
	}
	return result;
}

static void *churn(void *arg)
{
	struct held held = {.seed = self.number * 4 + (unsigned)(uintptr_t)arg};

	CHECK_OK(cuCtxSetCurrent(self.context));
	CHECK_OK(cuStreamCreate(&held.stream, 1));
	for (unsigned round = 0; !self.ends || round < 20; round++) {
		bool full = held.count == HELD || held.bytes > (self.greedy ? GREED : MODEST);

		if (full || (held.count && rand_r(&held.seed) % 3 == 0))
			end_one(&held);
		else if (make_one(&held) != CUDA_SUCCESS && held.count)
			end_one(&held);
	}
	return NULL;
}

/* Hands something out, and opens what another has handed out: it may be dead, and its handle torn.
 */
static void share(void)
{
	unsigned other = (self.place + 1 + self.number % (AT_ONCE - 1)) % AT_ONCE;
	CUipcMemHandle handle = tally->handle[other];
	CUdeviceptr own, opened;

	if (cuIpcOpenMemHandle_v2(&opened, handle, 1) == CUDA_SUCCESS)
		word_add(&tally->opened, 1);
	if (cuMemAlloc_v2(&own, 4 * MIB) != CUDA_SUCCESS)
		return;
	CHECK_OK(cuIpcGetMemHandle(&handle, own));
	tally->handle[self.place] = handle;
}

static bool start(void)
{
	uint64_t began_us = go_in();
	CUresult result;

	CHECK_OK(come_out(CALL_INIT, began_us, cuInit(0)));
	for (;;) {
		began_us = go_in();
		result = cuDevicePrimaryCtxRetain(&self.context, 0);
		if (come_out(CALL_CONTEXT, began_us, result) == CUDA_SUCCESS)
			break;
		if (self.ends)
			return false;
		sleep_ms(1);
	}
	CHECK_OK(cuCtxSetCurrent(self.context));
	word_add(&tally->with_context, 1);
	return true;
}

/* Until it is killed, most often. */
static void be(unsigned number, unsigned place)
{
	pthread_t thread;

	self.number = number;
	self.place = place;
	self.greedy = number / WAVE % 3 == 1 && number % 2 == 0;
	self.sharing = number % 5 == 0;
	self.threads = number % 7 == 0;
	self.hasty = number % 4 == 1;
	self.ends = number % 11 == 0;
	if (self.hasty) /* with a driver that has nothing, nearly all of its time is the region's */
		env_set("VGPU_SIM_FAULTS", "cuMemAllocManaged=2");
	if (!start())
		return;
	if (self.sharing)
		share();
	for (uintptr_t i = 1; self.threads && i <= THREADS; i++)
		CHECK(pthread_create(&thread, NULL, churn, (void *)i) == 0);
	churn(NULL);
}

TEST_ROLE(program)
{
	unsigned both = (unsigned)atoi(argv[0]);

	(void)argc;
	tally_open();
	be(both / AT_ONCE, both % AT_ONCE);
}

/* -- their ends ---------------------------------------------------------------------------------
 */

static struct place {
	pid_t pid;                           /* 0: nobody */
	uint64_t stop_ms, go_on_ms, kill_ms; /* when; 0: not, or not any more */
} places[AT_ONCE];

static struct {
	unsigned started, killed, ended, stopped, wrong;
	uint64_t longest_us; /* that somebody was in a call when he was killed */
	uint64_t pass_us; /* that the scene took to attend to all of them once: a busy machine's */
	uint64_t had_context; /* when the wave began */
	unsigned life_ms;     /* the longest life that is common in this wave */
} so_far;

static int said; /* what they have on stderr; a file */

/* A process needs longer for its context on a busy machine. If most of a wave died without one, the
 * next wave's lives are twice as long. */
static void begin_wave(unsigned number)
{
	uint64_t with_context = word_read(&tally->with_context);

	if (number == 0)
		so_far.life_ms = LIFE_MS;
	else if (with_context - so_far.had_context < WAVE / 2)
		so_far.life_ms *= 2;
	so_far.had_context = with_context;
}

static void start_one(unsigned at, unsigned *seed)
{
	unsigned number = so_far.started++;
	struct place *place = &places[at];
	uint64_t now, life_ms;
	char text[16];

	if (number % WAVE == 0)
		begin_wave(number);
	now = now_ms();
	life_ms = (unsigned)rand_r(seed) % so_far.life_ms;
	if (number % 256 == 5)
		life_ms = LONG_LIFE_MS;
	word_write(&tally->in_call_us[at], 0);
	*place = (struct place){.kill_ms = now + life_ms};
	if (number % 8 == 0 && life_ms > 2) {
		place->stop_ms = now + (unsigned)rand_r(seed) % life_ms;
		place->go_on_ms = place->stop_ms + (unsigned)rand_r(seed) % STOP_MS;
	}
	place->pid = fork();
	CHECK(place->pid >= 0);
	if (place->pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(said, STDERR_FILENO);
	if (number % 10 == 0) {
		snprintf(text, sizeof(text), "%u", number * AT_ONCE + at);
		role_exec("program", text);
	}
	be(number, at);
	_exit(0);
}

/* Whether it is over with it. */
static bool has_ended(struct place *place)
{
	int status;
	pid_t pid = waitpid(place->pid, &status, WNOHANG);

	CHECK(pid >= 0);
	if (pid == 0)
		return false;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		so_far.ended++;
	else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		so_far.killed++;
	else
		so_far.wrong++;
	place->pid = 0;
	return true;
}

static void kill_one(struct place *place)
{
	uint64_t since_us = word_read(&tally->in_call_us[place - places]), now = now_us();

	kill(place->pid, SIGKILL);
	if (since_us && now > since_us && now - since_us > so_far.longest_us)
		so_far.longest_us = now - since_us;
}

static void attend(struct place *place)
{
	uint64_t now = now_ms();

	if (place->stop_ms && now >= place->stop_ms) {
		kill(place->pid, SIGSTOP);
		place->stop_ms = 0;
		so_far.stopped++;
	}
	if (!place->stop_ms && place->go_on_ms && now >= place->go_on_ms) {
		kill(place->pid, SIGCONT);
		place->go_on_ms = 0;
	}
	if (place->kill_ms && now >= place->kill_ms) {
		kill_one(place);
		place->kill_ms = 0;
	}
}

static void rage(unsigned count)
{
	unsigned seed = 1, busy;

	do {
		uint64_t began_us = now_us(), took_us;

		busy = 0;
		for (unsigned i = 0; i < AT_ONCE; i++) {
			if (places[i].pid && !has_ended(&places[i]))
				attend(&places[i]);
			if (!places[i].pid && so_far.started < count)
				start_one(i, &seed);
			busy += places[i].pid != 0;
		}
		usleep(500);
		took_us = now_us() - began_us;
		so_far.pass_us = took_us > so_far.pass_us ? took_us : so_far.pass_us;
	} while (busy);
}

/* -- the scene ----------------------------------------------------------------------------------
 */

static void print_said(void)
{
	char text[4096];
	ssize_t len = pread(said, text, sizeof(text) - 1, 0);

	text[len > 0 ? len : 0] = '\0';
	fputs(text, stderr);
	CHECK_EQUAL(len, 0);
}

static void print_calls(void)
{
	for (unsigned i = 0; i < CALLS; i++)
		printf("  %s: %llu, %llu refused; at most %llu us, %llu over 100 ms, %llu over 1 "
		       "s\n",
		       call_names[i], (unsigned long long)tally->call[i].count,
		       (unsigned long long)tally->call[i].refused,
		       (unsigned long long)tally->call[i].longest_us,
		       (unsigned long long)tally->call[i].over_100_ms,
		       (unsigned long long)tally->call[i].over_1_s);
}

static void print_findings(uint64_t took_ms, uint64_t peak)
{
	printf("lives of at most %u ms in the last wave\n", so_far.life_ms);
	printf("%u processes in %llu ms: %u killed, %u ended, %u stopped; %llu had a context, %llu "
	       "met a refusal, %llu opened another's memory; %u takeovers\n",
	       so_far.started, (unsigned long long)took_ms, so_far.killed, so_far.ended,
	       so_far.stopped, (unsigned long long)tally->with_context,
	       (unsigned long long)tally->refused_processes, (unsigned long long)tally->opened,
	       ledger()->own.takeovers);
	print_calls();
	printf("  the device held %llu MiB at most, of %llu\n", (unsigned long long)(peak / MIB),
	       (unsigned long long)(QUOTA / MIB));
	printf("  who was killed had been in a call for at most %llu us; the scene was held up for "
	       "%llu us\n",
	       (unsigned long long)so_far.longest_us, (unsigned long long)so_far.pass_us);
	fflush(stdout);
}

TEST(storm)
{
	const char *wanted = getenv("STORM");
	unsigned count = wanted ? (unsigned)atoi(wanted) : STORM_DEFAULT;
	uint64_t began = now_ms();
	uint64_t peak;

	place_set(QUOTA);
	tally_open();
	said = open(scene_path("said"), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	CHECK(said >= 0);
	outside_peak_begin(0);
	rage(count);
	peak = outside_peak(0);
	print_findings(now_ms() - began, peak);
	print_said();
	CHECK_EQUAL(so_far.wrong, 0);
	CHECK_EQUAL(so_far.killed + so_far.ended, count);
	CHECK_AT_MOST(peak, QUOTA + AT_ONCE * GRANULE);
	/* Who waits, waits for others, who are each held up as the scene itself was. */
	CHECK_AT_MOST(so_far.longest_us, HANG_MS * 1000 + AT_ONCE * so_far.pass_us);
	/* It was a storm, and more was wanted than there is: how often depends on the machine. */
	CHECK_AT_MOST(count / 4, tally->with_context);
	CHECK_AT_MOST(1, tally->refused_processes);
	assert_nobody();
	began = now_ms();
	place_check_whole(QUOTA);
	printf("  the next has all of it in %llu ms\n", (unsigned long long)(now_ms() - began));
}
