/*
 * A program's whole life, in which one system call of the library fails: the first, then, in
 * another life, the second, and so on to the last; with each of the errors in turn. Whatever it is,
 * the program does not crash or hang; what CUDA answers, the driver could have answered; a start
 * that fails is told in a line; the device never holds more than the quota; and who comes next has
 * all of it.
 *
 * Where one call follows another of its kind, as a new region's zeros are written, the first, the
 * second and the last of them are made to fail.
 */
#include "faulty.h"
#include "kinds.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nvml_abi.h"

#define NVML_HOOK(name, parameters, arguments) nvmlReturn_t name parameters;
#define NVML_CALL(name, parameters)            nvmlReturn_t name parameters;
#include "nvml.def"

#define QUOTA   (2 * CHARGE + 640 * MIB)
#define PIECES  32
#define PIECE   (64 * MIB)
#define AT_ONCE 4

static const int errors[] = {EINTR, ENOMEM, EMFILE, EIO, EPERM, ENOSYS};

#define ERRORS (sizeof(errors) / sizeof(*errors))

/* -- the life -----------------------------------------------------------------------------------
 */

enum word {
	WORD_REFUSED = 1, /* its CUDA does not start */
	WORD_NO_CONTEXT,  /* it starts, and has no context */
	WORD_LOOK,        /* let the scene look at the device */
	WORD_NEIGHBOUR,   /* let a neighbour come, and take its part */
	WORD_KILL,        /* let it be killed */
	WORD_LACKS,       /* what the neighbour had is not to be had within a second */
};

static void ask(int wire, enum word word)
{
	tell(wire, word);
	hear(wire);
}

/* What the driver could answer to who asks it for memory. */
static bool is_had(CUresult result)
{
	CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY ||
	      result == CUDA_ERROR_NOT_PERMITTED);
	return result == CUDA_SUCCESS;
}

/* The driver is as before its start, and says so. */
static void live_without(int wire)
{
	CUcontext context = NULL;
	CUdeviceptr address = UNTOUCHED;

	CHECK(cuInit(0) != CUDA_SUCCESS);
	CHECK(cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS);
	CHECK(cuMemAlloc_v2(&address, MIB) != CUDA_SUCCESS);
	CHECK_EQUAL(address, UNTOUCHED);
	ask(wire, WORD_REFUSED);
}

static void ask_nvml(void)
{
	nvmlProcessInfo_t processes[16];
	unsigned count = 16;
	nvmlReturn_t result;
	nvmlMemory_t memory;
	nvmlDevice_t device;

	CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
	CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
	CHECK_EQUAL(nvmlDeviceGetMemoryInfo(device, &memory), NVML_SUCCESS);
	CHECK_AT_MOST(memory.used, memory.total);
	result = nvmlDeviceGetComputeRunningProcesses_v3(device, &count, processes);
	CHECK(result == NVML_SUCCESS || result == NVML_ERROR_MEMORY);
}

/* As much of a kind as there is. */
static void fill_with(enum kind kind, CUstream stream, int wire)
{
	struct thing things[PIECES];
	unsigned count = 0;

	while (count < PIECES && is_had(thing_make(kind, PIECE, stream, &things[count])))
		count++;
	ask(wire, WORD_LOOK);
	while (count)
		CHECK_OK(thing_end(&things[--count], stream));
	CHECK_OK(cuStreamSynchronize(stream));
}

/* Small ones, in granules that they share; some stay to the end. */
static void take_small(int wire)
{
	CUdeviceptr small[64];
	unsigned count = 0;

	while (count < 64 && is_had(cuMemAlloc_v2(&small[count], 100000)))
		count++;
	ask(wire, WORD_LOOK);
	while (count > 8)
		give(small[--count]);
}

static void forked(void)
{
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		CHECK(cuInit(0) != CUDA_SUCCESS);
		_exit(0);
	}
	expect_ended(child);
}

/* Somebody of the slice dies, and leaves room. */
static void outlive(int wire)
{
	uint64_t began = now_ms();
	CUdeviceptr address;
	CUresult result;

	ask(wire, WORD_NEIGHBOUR);
	is_had(cuMemAlloc_v2(&address, 600 * MIB)); /* which it has */
	ask(wire, WORD_KILL);
	while (!is_had(result = cuMemAlloc_v2(&address, 600 * MIB)) && now_ms() - began < 1000)
		sleep_ms(1);
	if (result != CUDA_SUCCESS)
		ask(wire, WORD_LACKS);
	else
		ask(wire, WORD_LOOK);
	if (result == CUDA_SUCCESS)
		give(address);
}

/* Refused for want of room, or by the library. */
static void live_without_context(int wire)
{
	CUdeviceptr address = UNTOUCHED;

	CHECK(cuMemAlloc_v2(&address, MIB) != CUDA_SUCCESS);
	CHECK_EQUAL(address, UNTOUCHED);
	ask(wire, WORD_NO_CONTEXT);
}

/* Whether there is a context now. */
static bool is_started(int wire)
{
	CUcontext context;

	ask_nvml();
	if (cuInit(0) != CUDA_SUCCESS) {
		live_without(wire);
		return false;
	}
	if (!is_had(cuDevicePrimaryCtxRetain(&context, 0))) {
		live_without_context(wire);
		return false;
	}
	CHECK_OK(cuCtxSetCurrent(context));
	return true;
}

TEST_ROLE(start)
{
	int wire = atoi(argv[0]);

	(void)argc;
	if (is_started(wire))
		ask(wire, WORD_LOOK);
}

TEST_ROLE(live)
{
	int wire = atoi(argv[0]);
	CUstream stream;

	(void)argc;
	if (!is_started(wire))
		return;
	CHECK_OK(cuStreamCreate(&stream, 1));
	for (enum kind kind = 0; kind < KINDS; kind++)
		fill_with(kind, stream, wire);
	take_small(wire);
	forked();
	outlive(wire);
	sleep_ms(21); /* the books are compared again */
	fill_with(KIND_DEVICE, stream, wire);
	ask_nvml();
}

/* -- the scene ----------------------------------------------------------------------------------
 */

/* In shared memory, by all that play. */
static struct findings {
	uint64_t lives, failures, refused, without_context, lacks, told, longest_ms;
	uint64_t calls;                       /* that can be made to fail */
	uint16_t trace[PLAN_TRACE_CALLS + 5]; /* call i is of number trace[i + 2] */
} * findings;

static struct life {
	bool made;     /* the region is there before; otherwise the life is a start, and no more */
	uint64_t call; /* from 1; 0: none fails */
	int error;
	bool refused;
	struct faulty program;
	struct member neighbour; /* pid 0: there is none */
} this;

/* The library as it is, with no plan. */
static void neighbour(int wire)
{
	cuda_start(0);
	take(500 * MIB);
	say_ready(wire);
}

static void neighbour_start(void)
{
	this.neighbour = member_begin(neighbour);
}

static void neighbour_kill(void)
{
	if (this.neighbour.pid)
		member_kill(&this.neighbour);
	this.neighbour.pid = 0;
}

static void do_word(uint64_t word)
{
	switch (word) {
	case WORD_REFUSED:
		word_add(&findings->refused, 1);
		this.refused = true;
		CHECK_SOON_EQUAL(outside_used(0), 0);
		break;
	case WORD_NO_CONTEXT:
		word_add(&findings->without_context, 1);
		CHECK_AT_MOST(outside_used(0), HIDDEN);
		break;
	case WORD_NEIGHBOUR:
		neighbour_start();
		break;
	case WORD_KILL:
		neighbour_kill();
		break;
	case WORD_LACKS:
		word_add(&findings->lacks, 1);
		break;
	default:
		break;
	}
	CHECK_AT_MOST(outside_used(0), QUOTA + 2 * GRANULE);
	tell(this.program.member.wire, 1);
}

/* What the program said, which has ended. */
static const char *stderr_of_program(void)
{
	static char text[4096];
	char name[32];
	FILE *file;

	snprintf(name, sizeof(name), "stderr-%d", getpid());
	file = fopen(scene_path(name), "r");
	CHECK(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	return text;
}

/* Until it ends, which it does. */
static void serve(void)
{
	uint64_t began = now_ms(), word;
	bool over = false;
	int status;

	while (!over) {
		if (faulty_hear(&this.program, 100, &word, &over))
			do_word(word);
		CHECK(now_ms() - began < WAIT_S * 1000);
	}
	status = faulty_wait(&this.program);
	if (status)
		fputs(stderr_of_program(), stderr);
	CHECK_EQUAL(status, 0);
	word_raise(&findings->longest_ms, now_ms() - began);
}

/* Every line is the library's own; and where CUDA was refused, there is one. */
static void check_stderr(void)
{
	const char *text = stderr_of_program();

	for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
		CHECK(strncmp(line, "vgpu: ", 6) == 0);
		CHECK(strchr(line, '\n'));
	}
	if (this.refused)
		CHECK_EQUAL(lines_in(text), 1);
	else if (*text)
		word_add(&findings->told, 1);
}

static void play(const char *plan)
{
	char name[32];

	place_set(QUOTA);
	snprintf(name, sizeof(name), "stderr-%d", getpid());
	faulty_stderr(strdup(scene_path(name)));
	if (this.made)
		place_check_whole(QUOTA);
	this.program = faulty_start(this.made ? "live" : "start", NULL, plan);
	serve();
	neighbour_kill();
	check_stderr();
	place_check_whole(QUOTA);
	word_add(&findings->lives, 1);
}

static void play_without_fault(int wire)
{
	(void)wire;
	play(NULL);
	CHECK_EQUAL(this.refused, false);
	findings->calls = this.program.report->calls;
	memcpy(findings->trace + 3, this.program.report->trace,
	       findings->calls * sizeof(*findings->trace));
}

/* Tells where it fails. */
static void play_with_fault(int wire)
{
	char plan[32];
	int status = 0;
	pid_t child;

	(void)wire;
	snprintf(plan, sizeof(plan), "%llu %d", (unsigned long long)this.call, this.error);
	child = fork();
	if (child == 0) {
		play(plan);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	if (status)
		fprintf(stderr, "calls: call %llu (system call %u), errno %d: status %#x\n",
			(unsigned long long)this.call, findings->trace[this.call + 2], this.error,
			(unsigned)status);
	if (status)
		word_add(&findings->failures, 1);
}

/* Whether calls i and j are of the same kind, and so are those around them. */
static bool is_like(uint64_t i, uint64_t j)
{
	const uint16_t *trace = findings->trace;

	for (int d = -2; d <= 2; d++)
		if (trace[i + 2 + (uint64_t)d] != trace[j + 2 + (uint64_t)d])
			return false;
	return true;
}

/* Not the third of many that are alike. */
static bool is_sampled(uint64_t call)
{
	unsigned alike = 0;

	for (uint64_t i = 1; i < call && alike < 2; i++)
		alike += is_like(i, call);
	return alike < 2;
}

static struct member places[AT_ONCE];
static unsigned place_count;

static void start_life(void)
{
	struct member *place = &places[place_count++ % AT_ONCE];

	if (place->pid)
		member_end(place);
	*place = member_start(play_with_fault);
}

static void play_all(bool made)
{
	struct member first;
	unsigned sampled = 0;

	findings = memory_share(sizeof(*findings));
	this.made = made;
	first = member_start(play_without_fault);
	member_end(&first);
	CHECK(findings->calls > 50 && findings->calls < PLAN_TRACE_CALLS);
	for (this.call = 1; this.call <= findings->calls; this.call++) {
		if (!is_sampled(this.call))
			continue;
		sampled++;
		for (size_t i = 0; i < ERRORS; i++) {
			this.error = errors[i];
			start_life();
		}
	}
	for (unsigned i = 0; i < AT_ONCE; i++)
		member_end(&places[i]);
	printf("%llu lives, with %u of %llu calls failing: %llu times a start was refused, %llu "
	       "times a context, %llu times a dead one's memory; %llu times a line was said "
	       "besides; the longest life was %llu ms\n",
	       (unsigned long long)findings->lives, sampled, (unsigned long long)findings->calls,
	       (unsigned long long)findings->refused, (unsigned long long)findings->without_context,
	       (unsigned long long)findings->lacks, (unsigned long long)findings->told,
	       (unsigned long long)findings->longest_ms);
	CHECK(findings->refused > 10);
	CHECK_EQUAL(findings->failures, 0);
}

/* Up to the context; there is no region yet. */
TEST(start_in_a_new_slice)
{
	play_all(false);
}

/* The region is there, and was the dead's. */
TEST(live_in_a_used_slice)
{
	play_all(true);
}
