/*
 * kill BUILD ROUNDS: in a slice of 8 GiB a process that holds 4 is killed (-9) while another
 * allocates in a loop, so many times. Prints how much the device held at most beyond what it held
 * before, in MiB rounded up, and how long the other waited for its memory, in ms: "kill HIGHEST
 * MEDIAN LONGEST". Itself it is in no slice: what it says of the device is what NVML on the host
 * says.
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nvml_abi.h"
#include "paths.h"

#define NVML_HOOK(name, parameters, arguments) nvmlReturn_t name parameters;
#define NVML_CALL(name, parameters)            nvmlReturn_t name parameters;
#include "nvml.def"

#define STEP_BYTES (64 * MIB)
#define HALF_BYTES (4096 * MIB)
#define PIECES     4096
#define ROUNDS_MAX 1000

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void must(bool holds, const char *what)
{
	if (holds)
		return;
	printf("FAIL %s\n", what);
	fflush(stdout);
	exit(1);
}

/* -- in the slice ----------------------------------------------------------------------------- */

static void start_cuda(void)
{
	CUcontext context;

	must(cuInit(0) == CUDA_SUCCESS, "cuInit");
	must(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS, "a context");
	must(cuCtxSetCurrent(context) == CUDA_SUCCESS, "the context");
}

/* Takes 4 GiB, says who it is, and waits to be killed. */
static _Noreturn void hold(void)
{
	CUdeviceptr address;

	start_cuda();
	must(cuMemAlloc_v2(&address, HALF_BYTES) == CUDA_SUCCESS, "4 GiB for the holder");
	printf("%d\n", (int)getpid());
	fflush(stdout);
	for (;;)
		cuCtxSynchronize();
}

/* For each line that it reads: takes all that there is, says how much, and goes on trying until it
 * has 4 GiB more; says when that was, and gives these back. Ends with its input. */
static int take(void)
{
	static CUdeviceptr pieces[PIECES];
	unsigned count = 0, before;
	char line[16];

	start_cuda();
	while (fgets(line, sizeof(line), stdin)) {
		while (cuMemAlloc_v2(&pieces[count], STEP_BYTES) == CUDA_SUCCESS)
			count++;
		before = count;
		printf("%u\n", count);
		fflush(stdout);
		while (count < before + HALF_BYTES / STEP_BYTES)
			if (cuMemAlloc_v2(&pieces[count], STEP_BYTES) == CUDA_SUCCESS)
				count++;
		printf("%llu\n", (unsigned long long)now_us());
		fflush(stdout);
		while (count > 0)
			cuMemFree_v2(pieces[--count]);
		printf("0\n");
		fflush(stdout);
	}
	return 0;
}

/* -- outside ---------------------------------------------------------------------------------- */

static nvmlDevice_t device;
static uint64_t highest_bytes; /* of the sampler, atomic */

static uint64_t used_bytes(void)
{
	nvmlMemory_t memory = {0};

	must(nvmlDeviceGetMemoryInfo(device, &memory) == NVML_SUCCESS, "NVML's memory");
	return memory.used;
}

static void *sample(void *arg)
{
	(void)arg;
	for (;;) {
		uint64_t used = used_bytes();

		if (used > __atomic_load_n(&highest_bytes, __ATOMIC_RELAXED))
			__atomic_store_n(&highest_bytes, used, __ATOMIC_RELAXED);
	}
	return NULL;
}

struct child {
	pid_t pid;
	FILE *to, *from;
};

static struct child start(const char *build, const char *role)
{
	char vgpu[4096], self[4096];
	struct child child;
	int in[2], out[2];

	snprintf(vgpu, sizeof(vgpu), "%s/vgpu", build);
	snprintf(self, sizeof(self), "%s/tests/gpu/kill", build);
	must(pipe(in) == 0 && pipe(out) == 0, "a pipe");
	child.pid = fork();
	if (child.pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		for (int fd = 3; fd < 64; fd++)
			close(fd);
		execl(vgpu, vgpu, "run", "--name", "kill", "--", self, role, (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	child.to = fdopen(in[1], "w");
	child.from = fdopen(out[0], "r");
	return child;
}

static uint64_t hear(const struct child *child)
{
	char line[64] = "";

	must(fgets(line, sizeof(line), child->from) != NULL, "a child ended");
	must(line[0] >= '0' && line[0] <= '9', line);
	return strtoull(line, NULL, 10);
}

static void end(struct child *child)
{
	fclose(child->to);
	fclose(child->from);
	waitpid(child->pid, NULL, 0);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static int watch(const char *build, unsigned rounds)
{
	static uint64_t waited_us[ROUNDS_MAX];
	struct child taker, holder;
	uint64_t before, highest;
	pthread_t sampler;

	must(nvmlInit_v2() == NVML_SUCCESS, "nvmlInit");
	must(nvmlDeviceGetHandleByIndex_v2(0, &device) == NVML_SUCCESS, "GPU 0");
	before = used_bytes();
	must(pthread_create(&sampler, NULL, sample, NULL) == 0, "a thread");
	taker = start(build, "take");
	for (unsigned round = 0; round < rounds; round++) {
		uint64_t began;
		pid_t victim;

		holder = start(build, "hold");
		victim = (pid_t)hear(&holder);
		fputs("go\n", taker.to);
		fflush(taker.to);
		hear(&taker);
		usleep(round * 7919 % 5000); /* it goes on trying */
		began = now_us();
		kill(victim, SIGKILL);
		waited_us[round] = hear(&taker) - began;
		hear(&taker);
		end(&holder);
	}
	end(&taker);
	qsort(waited_us, rounds, sizeof(*waited_us), compare);
	highest = __atomic_load_n(&highest_bytes, __ATOMIC_RELAXED) - before;
	printf("kill %llu %.0f %.0f\n", (unsigned long long)((highest + MIB - 1) / MIB),
	       (double)waited_us[rounds / 2] / 1e3, (double)waited_us[rounds - 1] / 1e3);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;

	if (argc == 2 && strcmp(argv[1], "hold") == 0)
		hold();
	if (argc == 2 && strcmp(argv[1], "take") == 0)
		return take();
	if (rounds > 0 && rounds <= ROUNDS_MAX)
		return watch(argv[1], rounds);
	fprintf(stderr, "usage: kill BUILD ROUNDS, with vgpu run --name kill alive\n");
	return 2;
}
