/*
 * fork: a child of a process that has called cuInit cannot use CUDA and does not keep its parent's
 * memory; NVML goes on working in it. A child of a process that has not is free.
 */
#include "selftest.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void spoilt(void *argument)
{
	CUdeviceptr p;
	int version;

	CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_EQUAL(cuMemAlloc_v2(&p, 1), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_EQUAL(cuMemFree_v2(*(CUdeviceptr *)argument), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_OK(cuDriverGetVersion(&version));
	CHECK_EQUAL(selftest_process_bytes(0, getppid()), CONTEXT + 2 * MIB);
}

/* Takes memory, leaves a child behind that writes its pid, and ends. */
static void parent(int out)
{
	CUdeviceptr p;

	selftest_context();
	CHECK_OK(cuMemAlloc_v2(&p, 1));
	selftest_child_run(spoilt, &p);
	if (!fork()) {
		pid_t self = getpid();

		CHECK_EQUAL(write(out, &self, sizeof self), sizeof self);
		alarm(30); /* whatever becomes of the test */
		for (;;)
			pause();
	}
	_exit(0);
}

static void child_first(void *argument)
{
	(void)argument;
	selftest_context();
	CHECK_EQUAL(selftest_process_bytes(0, getpid()), CONTEXT);
}

int main(void)
{
	int out[2], status;
	pid_t orphan;

	selftest_begin(NULL);
	selftest_child_run(child_first, NULL);
	CHECK(!pipe(out));
	pid_t pid = fork();
	if (!pid)
		parent(out[1]);
	CHECK_EQUAL(waitpid(pid, &status, 0), pid);
	CHECK_EQUAL(status, 0);
	CHECK_EQUAL(read(out[0], &orphan, sizeof orphan), sizeof orphan);
	CHECK_EQUAL(selftest_used(0), 0); /* though the orphan lives */
	CHECK(!kill(orphan, 0));
	CHECK(!kill(orphan, SIGKILL));
	return 0;
}
