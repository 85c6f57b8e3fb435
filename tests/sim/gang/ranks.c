/*
 * A job of several ranks, a GPU each, on the simulated machine: see rank.h for what it does,
 * usage() for how it is told. Prints how many steps it did in a second, and for which part of the
 * time each GPU was busy as NVML says, of all processes together and spinning included.
 *
 *   ranks --ranks 2 --work 1000000 --collective 200000 --seconds 3
 *   steps 5000 rate 833.1
 *   busy 99.8 99.6
 */
#include "rank.h"
#include "watch.h"

#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum mode { MODE_PROCESSES, MODE_THREADS, MODE_THREAD };

enum option_number {
	OPTION_RANKS = 1,
	OPTION_MODE,
	OPTION_WORK,
	OPTION_COLLECTIVE,
	OPTION_STEPS,
	OPTION_SECONDS,
	OPTION_WARM,
	OPTION_AHEAD,
	OPTION_STALL,
	OPTION_LATE,
	OPTION_GRAPH,
	OPTION_PIPELINE,
	OPTION_COMMS,
	OPTION_SIGN,
	OPTION_STOP,
	OPTION_KILL,
	OPTION_JOB,
	OPTION_RANK,
	OPTION_BATCH,
};

static const struct option options[] = {
	{"ranks", required_argument, NULL, OPTION_RANKS},
	{"mode", required_argument, NULL, OPTION_MODE},
	{"work", required_argument, NULL, OPTION_WORK},
	{"collective", required_argument, NULL, OPTION_COLLECTIVE},
	{"steps", required_argument, NULL, OPTION_STEPS},
	{"seconds", required_argument, NULL, OPTION_SECONDS},
	{"warm", required_argument, NULL, OPTION_WARM},
	{"ahead", required_argument, NULL, OPTION_AHEAD},
	{"stall", required_argument, NULL, OPTION_STALL},
	{"late", required_argument, NULL, OPTION_LATE},
	{"graph", no_argument, NULL, OPTION_GRAPH},
	{"pipeline", no_argument, NULL, OPTION_PIPELINE},
	{"comms", required_argument, NULL, OPTION_COMMS},
	{"sign", required_argument, NULL, OPTION_SIGN},
	{"stop", required_argument, NULL, OPTION_STOP},
	{"kill", required_argument, NULL, OPTION_KILL},
	{"job", required_argument, NULL, OPTION_JOB},
	{"rank", required_argument, NULL, OPTION_RANK},
	{"batch", no_argument, NULL, OPTION_BATCH},
	{NULL, 0, NULL, 0},
};

static void usage(void)
{
	fputs("ranks [option...]; times in nanoseconds unless it says otherwise\n"
	      "  --ranks N         default 2\n"
	      "  --mode MODE       processes (default), threads, or thread: one for all ranks\n"
	      "  --work NS, --collective NS\n"
	      "  --comms K         collectives in a step, each after a part of the work, "
	      "overlapped\n"
	      "  --pipeline        receive from the rank before, send to the rank after\n"
	      "  --graph           a step is a graph\n"
	      "  --ahead N         steps that a host queues before it waits for the first; default "
	      "4\n"
	      "  --batch           the host waits for all of them, and then queues the next ones\n"
	      "  --stall NS        hosts sleep at random, up to that before one step in four\n"
	      "  --late NS         the last rank's host sleeps before one step in fifty\n"
	      "  --seconds S, --warm S   how long to measure, and how long to run before\n"
	      "  --steps N         that many steps, and no measuring\n"
	      "  --sign SIGN       none, peer, access, or ipc; default ipc or peer, as the mode "
	      "is\n"
	      "  --stop MS         the last rank's process is stopped for so long, halfway\n"
	      "  --kill MS         it is killed then; the others must wait, and are killed too\n"
	      "  --job FILE --rank I     only that rank: others of the job are started likewise\n",
	      stderr);
	exit(2);
}

/* -- how it is told --------------------------------------------------------------------------- */

static struct job job = {
	.ranks = 2,
	.work_ns = 1000000,
	.collective_ns = 200000,
	.comms = 1,
	.ahead = 4,
	.warm_s = 0.5,
	.seconds = 2,
};
static enum mode mode;
static uint64_t stop_ms, kill_ms;
static const char *job_path;
static int only = -1; /* this rank; or all */
static bool signed_so;

static double number(double most)
{
	char *end;
	double value = strtod(optarg, &end);

	if (*end || end == optarg || value < 0 || value > most)
		usage();
	return value;
}

static unsigned word(const char *const *words)
{
	for (unsigned i = 0; words[i]; i++) {
		if (!strcmp(words[i], optarg))
			return i;
	}
	usage();
	return 0;
}

static void option_read(enum option_number which)
{
	static const char *const modes[] = {"processes", "threads", "thread", NULL};
	static const char *const signs[] = {"none", "peer", "access", "ipc", NULL};

	switch (which) {
	case OPTION_RANKS:
		job.ranks = (unsigned)number(RANKS_MAX);
		break;
	case OPTION_MODE:
		mode = (enum mode)word(modes);
		break;
	case OPTION_WORK:
		job.work_ns = (uint64_t)number(1e12);
		break;
	case OPTION_COLLECTIVE:
		job.collective_ns = (uint64_t)number(1e12);
		break;
	case OPTION_STEPS:
		job.steps = (uint64_t)number(1e9);
		break;
	case OPTION_SECONDS:
		job.seconds = number(1e6);
		break;
	case OPTION_WARM:
		job.warm_s = number(1e6);
		break;
	case OPTION_AHEAD:
		job.ahead = (unsigned)number(AHEAD_MAX);
		break;
	case OPTION_BATCH:
		job.batch = true;
		break;
	case OPTION_STALL:
		job.stall_ns = (uint64_t)number(1e12);
		break;
	case OPTION_LATE:
		job.late_ns = (uint64_t)number(1e12);
		break;
	case OPTION_GRAPH:
		job.graph = true;
		break;
	case OPTION_PIPELINE:
		job.pipeline = true;
		break;
	case OPTION_COMMS:
		job.comms = (unsigned)number(COMMS_MAX);
		break;
	case OPTION_SIGN:
		job.sign = (enum sign)word(signs);
		signed_so = true;
		break;
	case OPTION_STOP:
		stop_ms = (uint64_t)number(1e6);
		break;
	case OPTION_KILL:
		kill_ms = (uint64_t)number(1e6);
		break;
	case OPTION_JOB:
		job_path = optarg;
		break;
	case OPTION_RANK:
		only = (int)number(RANKS_MAX - 1);
		break;
	default:
		usage();
	}
}

static void options_read(int argc, char **argv)
{
	int which;

	while ((which = getopt_long(argc, argv, "", options, NULL)) != -1)
		option_read((enum option_number)which);
	if (!signed_so)
		job.sign = mode == MODE_PROCESSES ? SIGN_IPC : SIGN_PEER;
	if (optind < argc || !job.ranks || !job.comms || (job.batch && !job.ahead) ||
	    only >= (int)job.ranks || (only >= 0) != (job_path != NULL) ||
	    (mode != MODE_PROCESSES && (stop_ms || kill_ms || only >= 0)) ||
	    ((job.sign == SIGN_IPC) != (mode == MODE_PROCESSES) && job.sign != SIGN_NONE))
		usage();
}

/* -- ranks ------------------------------------------------------------------------------------ */

static struct common *common;

static void common_open(void)
{
	int fd = -1, flags = MAP_SHARED | (job_path ? 0 : MAP_ANONYMOUS);

	if (job_path) {
		fd = open(job_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		CHECK(fd >= 0 && !ftruncate(fd, sizeof *common));
	}
	common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, flags, fd, 0);
	CHECK(common != MAP_FAILED);
	/* Whoever of the job comes first says it. */
	uint64_t nobody = 0, communicator = now_ns() / 1000 * 1000 + (uint64_t)getpid() % 1000 + 1;
	__atomic_compare_exchange_n(&common->communicator, &nobody, communicator, false,
				    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	nobody = 0;
	__atomic_compare_exchange_n(&common->end, &nobody, job.steps ? job.steps : UINT64_MAX,
				    false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static void one_rank(unsigned i)
{
	struct rank rank;

	rank_open(&rank, &job, common, i);
	rank_sign(&rank, 1);
	ranks_run(&rank, 1);
}

static void *thread_body(void *argument)
{
	ranks_run(argument, 1);
	return NULL;
}

static void one_process(void)
{
	static struct rank ranks[RANKS_MAX];
	pthread_t threads[RANKS_MAX];

	for (unsigned i = 0; i < job.ranks; i++)
		rank_open(&ranks[i], &job, common, i);
	rank_sign(ranks, job.ranks);
	if (mode == MODE_THREAD) {
		ranks_run(ranks, job.ranks);
		return;
	}
	for (unsigned i = 0; i < job.ranks; i++)
		CHECK(!pthread_create(&threads[i], NULL, thread_body, &ranks[i]));
	for (unsigned i = 0; i < job.ranks; i++)
		CHECK(!pthread_join(threads[i], NULL));
}

/* -- processes -------------------------------------------------------------------------------- */

static pid_t pids[RANKS_MAX];
static unsigned running;

static void processes_kill(void)
{
	for (unsigned i = 0; i < running; i++) {
		if (pids[i])
			kill(pids[i], SIGKILL);
	}
	for (unsigned i = 0; i < running; i++) {
		if (pids[i])
			waitpid(pids[i], NULL, 0);
		pids[i] = 0;
	}
}

static void processes_begin(void)
{
	bool alone = mode != MODE_PROCESSES;

	fflush(stdout);
	for (unsigned i = 0; i < (alone ? 1 : job.ranks); i++) {
		pids[i] = fork();
		CHECK(pids[i] >= 0);
		if (pids[i]) {
			running++;
			continue;
		}
		if (alone)
			one_process();
		else
			one_rank(i);
		exit(0);
	}
}

/* The rank that ends next, and how. */
static pid_t process_end(int *ret_status)
{
	siginfo_t info;

	for (;;) {
		CHECK(!waitid(P_ALL, 0, &info, WEXITED | WNOWAIT));
		for (unsigned i = 0; i < running; i++) {
			if (pids[i] == info.si_pid)
				return waitpid(info.si_pid, ret_status, 0);
		}
		waitpid(info.si_pid, NULL, 0); /* no rank's */
	}
}

/* All must end well; when one does not, the others would wait for it. */
static void processes_end(void)
{
	int status;

	for (unsigned left = running; left > 0; left--) {
		pid_t pid = process_end(&status);

		for (unsigned i = 0; i < running; i++) {
			if (pids[i] == pid)
				pids[i] = 0;
		}
		if (pid < 0 || status) {
			fprintf(stderr, "a rank has ended with status %#x\n", (unsigned)status);
			processes_kill();
			exit(1);
		}
	}
}

static bool any_ended(void)
{
	siginfo_t info = {.si_pid = 0};

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid;
}

static void measuring_wait(void)
{
	while (!PEEK(common->warm_at_ns) && !any_ended())
		sleep_ns(10000000);
}

static void stop_last(void)
{
	pid_t last = pids[job.ranks - 1];

	sleep_ns((uint64_t)(job.seconds / 2 * 1e9));
	kill(last, SIGSTOP);
	sleep_ns(stop_ms * 1000000);
	kill(last, SIGCONT);
}

static uint64_t done_by_others(void)
{
	uint64_t done = 0;

	for (unsigned i = 0; i + 1 < job.ranks; i++)
		done += PEEK(common->done[i]);
	return done;
}

/* Whether they do no step for a while. */
static bool others_stand_still(void)
{
	uint64_t before = done_by_others();

	sleep_ns(300000000);
	return done_by_others() == before;
}

/* The others must come to a stop, spinning, with steps left to do. */
static void kill_last(void)
{
	unsigned attempts = 0;

	sleep_ns(kill_ms * 1000000);
	kill(pids[job.ranks - 1], SIGKILL);
	while (!others_stand_still())
		CHECK(++attempts < 20);
	CHECK(PEEK(common->end) == UINT64_MAX);
	for (unsigned i = 0; i + 1 < job.ranks; i++)
		CHECK(waitpid(pids[i], NULL, WNOHANG) == 0);
	watch_end();
	processes_kill();
	puts("killed");
	exit(0);
}

static void report(void)
{
	double seconds = (double)(common->end_at_ns - common->warm_at_ns) / 1e9;

	printf("steps %llu", (unsigned long long)PEEK(common->end));
	if (common->warm_at_ns && seconds > 0)
		printf(" rate %.1f", (double)(PEEK(common->end) - common->warm_steps) / seconds);
	putchar('\n');
}

int main(int argc, char **argv)
{
	options_read(argc, argv);
	common_open();
	if (only > 0) {
		one_rank((unsigned)only);
		return 0;
	}
	if (only == 0) {
		watch_begin(job.ranks);
		one_rank(0);
		report();
		watch_end();
		return 0;
	}
	processes_begin();
	if (!job.steps) {
		measuring_wait();
		watch_begin(job.ranks);
	}
	if (stop_ms)
		stop_last();
	if (kill_ms)
		kill_last();
	processes_end();
	report();
	watch_end();
	return 0;
}
