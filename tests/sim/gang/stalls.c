/*
 * A program whose stream stalls in every step: it waits for something that is no kernel, works, and
 * waits again. The GPU is free while it waits. Prints as `ranks` does, and the part of the GPU's
 * time that it wants.
 *
 *   stalls --stall call --work 100000 --wait 300000
 *   wants 25.0
 *   steps 6230 rate 2491.2
 *   busy 24.9
 */
#include "rank.h"
#include "watch.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum stall { STALL_COPY, STALL_CALL, STALL_VALUE };

static const char *const names[] = {"copy", "call", "value"};

static enum stall stall;
static uint64_t work_ns = 100000, wait_ns = 300000, steps;
static unsigned ahead = 4;
static double warm_s = 0.5, seconds = 2;

static CUfunction spin;
static CUstream stream, other;
static CUevent worked, over, ends[AHEAD_MAX + 1];
static CUdeviceptr memory; /* a word, and what is copied to */
static void *copied;

static void usage(void)
{
	fputs("stalls [option...]; times in nanoseconds unless it says otherwise\n"
	      "  --stall KIND   copy: from the host, in another stream; call: a function of the "
	      "host;\n"
	      "                 value: a value that another stream writes after such a function\n"
	      "  --work NS, --wait NS    in each step\n"
	      "  --ahead N               steps that the host queues before it waits for the first\n"
	      "  --seconds S, --warm S   how long to measure, and how long to run before\n"
	      "  --steps N               that many steps, which must take as long as they take\n",
	      stderr);
	exit(2);
}

static double number(double most)
{
	char *end;
	double value = strtod(optarg, &end);

	if (*end || end == optarg || value < 0 || value > most)
		usage();
	return value;
}

static void option_read(int which)
{
	unsigned i = 0;

	switch (which) {
	case 's':
		while (i < 3 && strcmp(names[i], optarg))
			i++;
		if (i == 3)
			usage();
		stall = (enum stall)i;
		break;
	case 'w':
		work_ns = (uint64_t)number(1e12);
		break;
	case 't':
		wait_ns = (uint64_t)number(1e8);
		break;
	case 'a':
		ahead = (unsigned)number(AHEAD_MAX);
		break;
	case 'S':
		seconds = number(1e6);
		break;
	case 'W':
		warm_s = number(1e6);
		break;
	case 'n':
		steps = (uint64_t)number(1e9);
		break;
	default:
		usage();
	}
}

static void options_read(int argc, char **argv)
{
	static const struct option options[] = {
		{"stall", required_argument, NULL, 's'},   {"work", required_argument, NULL, 'w'},
		{"wait", required_argument, NULL, 't'},    {"ahead", required_argument, NULL, 'a'},
		{"seconds", required_argument, NULL, 'S'}, {"warm", required_argument, NULL, 'W'},
		{"steps", required_argument, NULL, 'n'},   {NULL, 0, NULL, 0},
	};
	int which;

	while ((which = getopt_long(argc, argv, "", options, NULL)) != -1)
		option_read(which);
	if (optind < argc)
		usage();
}

static void begin(void)
{
	static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
				  ".visible .entry spin_ns(.param .u64 ns) { ret; }\n";
	CUcontext context;
	CUmodule module;

	setenv("VGPU_SIM_HOST_COPY_MB_S", "1000", 1); /* a byte in a nanosecond */
	CHECK_OK(cuInit(0));
	CHECK_OK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK_OK(cuCtxSetCurrent(context));
	CHECK_OK(cuModuleLoadData(&module, ptx));
	CHECK_OK(cuModuleGetFunction(&spin, module, "spin_ns"));
	CHECK_OK(cuStreamCreate(&stream, 1));
	CHECK_OK(cuStreamCreate(&other, 1));
	CHECK_OK(cuEventCreate(&worked, 2));
	CHECK_OK(cuEventCreate(&over, 2));
	for (unsigned i = 0; i <= ahead; i++)
		CHECK_OK(cuEventCreate(&ends[i], 2));
	CHECK_OK(cuMemAlloc_v2(&memory, wait_ns + 256));
	CHECK_OK(cuMemsetD32_v2(memory, 0, 1));
	copied = calloc(1, wait_ns + 1);
	CHECK(copied);
}

static void call_host(void *data)
{
	(void)data;
	sleep_ns(wait_ns);
}

/* Behind the stream's work so far, and in its way. */
static void wait_in_stream(uint64_t step)
{
	if (stall == STALL_CALL) {
		CHECK_OK(cuLaunchHostFunc(stream, call_host, NULL));
		return;
	}
	CHECK_OK(cuEventRecord(worked, stream));
	CHECK_OK(cuStreamWaitEvent(other, worked, 0));
	if (stall == STALL_COPY) {
		CHECK_OK(cuMemcpyHtoDAsync_v2(memory + 256, copied, wait_ns, other));
		CHECK_OK(cuEventRecord(over, other));
		CHECK_OK(cuStreamWaitEvent(stream, over, 0));
		return;
	}
	CHECK_OK(cuLaunchHostFunc(other, call_host, NULL));
	CHECK_OK(cuStreamWriteValue32(other, memory, (cuuint32_t)step + 1, 0));
	CHECK_OK(cuStreamWaitValue32(stream, memory, (cuuint32_t)step + 1, 0));
}

static void step_begin(uint64_t step)
{
	void *parameters[] = {&work_ns};

	wait_in_stream(step);
	CHECK_OK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
	CHECK_OK(cuEventRecord(ends[step % (ahead + 1)], stream));
}

static void step_end(uint64_t step)
{
	CHECK_OK(cuEventSynchronize(ends[step % (ahead + 1)]));
}

/* So many steps, or for so long; how many. */
static uint64_t run(uint64_t first, uint64_t count, double for_s)
{
	uint64_t since_ns = now_ns(), step = first;

	while (count ? step < first + count : (double)(now_ns() - since_ns) < for_s * 1e9) {
		step_begin(step);
		if (step >= first + ahead)
			step_end(step - ahead);
		step++;
	}
	for (uint64_t last = step > first + ahead ? step - ahead : first; last < step; last++)
		step_end(last);
	return step - first;
}

int main(int argc, char **argv)
{
	options_read(argc, argv);
	printf("wants %.1f\n", 100.0 * (double)work_ns / (double)(work_ns + wait_ns));
	begin();
	uint64_t warm = steps ? 0 : run(0, 0, warm_s), since_ns = now_ns();
	if (!steps)
		watch_begin(1);
	uint64_t done = run(warm, steps, seconds), took_ns = now_ns() - since_ns;
	CHECK(took_ns >= done * (work_ns + wait_ns));
	printf("steps %llu rate %.1f\n", (unsigned long long)done,
	       (double)done * 1e9 / (double)took_ns);
	watch_end();
	return 0;
}
