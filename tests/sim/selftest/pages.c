/*
 * Managed memory that moves (VGPU_SIM_PAGE_MB_S): two processes that have 2 GiB each of a GPU of 4,
 * of which their contexts take one. A process that works after the other has to wait for its pages,
 * more than 1 GiB at 1 GB/s; one that works again has not.
 */
#include "selftest.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS    ((uint64_t)1000000)
#define TRIES 5 /* of work that should not take long, on a busy machine */

static const char ptx[] = ".version 7.0\n.target sm_70\n"
			  ".visible .entry spin_ns(.param .u64 ns) { ret; }\n";
static CUfunction spin;

static void open_gpu(void)
{
	CUdeviceptr memory;
	CUmodule module;

	selftest_context();
	CHECK_OK(cuModuleLoadData(&module, ptx));
	CHECK_OK(cuModuleGetFunction(&spin, module, "spin_ns"));
	CHECK_OK(cuMemAllocManaged(&memory, 2 * GIB, CU_MEM_ATTACH_GLOBAL));
}

/* How many ms a kernel of 1 ms has the GPU. */
static float work(void)
{
	uint64_t ns = MS;
	void *parameters[] = {&ns};
	CUevent begin, end;
	float ms = -1;

	CHECK_OK(cuEventCreate(&begin, 0));
	CHECK_OK(cuEventCreate(&end, 0));
	CHECK_OK(cuEventRecord(begin, NULL));
	CHECK_OK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
	CHECK_OK(cuEventRecord(end, NULL));
	CHECK_OK(cuEventSynchronize(end));
	CHECK_OK(cuEventElapsedTime(&ms, begin, end));
	return ms;
}

static void moves(bool are_set)
{
	float ms = work();

	CHECK(are_set ? ms >= 1000 : ms >= 0.99F);
	for (int i = 0; i < TRIES && ms >= 500; i++)
		ms = work();
	CHECK(ms < 500);
}

static void take_up(int wire)
{
	char byte;

	CHECK(read(wire, &byte, 1) == 1);
}

static void hand_over(int wire)
{
	CHECK(write(wire, "x", 1) == 1);
}

/* After open_gpu: its memory has room on the GPU. */
static void first(int wire, bool are_set)
{
	open_gpu();
	moves(false);
	hand_over(wire);
	take_up(wire);
	moves(are_set);
	hand_over(wire);
	take_up(wire);
}

/* The other one's has not. */
static void second(int wire, bool are_set)
{
	take_up(wire);
	open_gpu();
	moves(are_set);
	hand_over(wire);
	take_up(wire);
	moves(are_set);
	hand_over(wire);
}

static void both(void *argument)
{
	const char *speed = argument;
	int wires[2], status;
	pid_t pid;

	if (speed)
		setenv("VGPU_SIM_PAGE_MB_S", speed, 1);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wires) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		close(wires[0]);
		first(wires[1], speed);
		_exit(0);
	}
	close(wires[1]);
	second(wires[0], speed);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(void)
{
	selftest_begin("1x4G");
	selftest_child_run(both, NULL);
	selftest_child_run(both, "1000");
	return 0;
}
