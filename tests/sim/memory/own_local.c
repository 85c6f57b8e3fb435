/* Local memory of kernels, which the driver takes at their first launch: it is reserved when their
 * functions are handed out, and refused then; or at the launch, where the hand-out was too early.
 */
#include "own_fixture.h"

#include <unistd.h>

static const char kernels[] = ".version 8.0\n.target sm_90\n"
			      ".visible .entry small() { .local .align 4 .b8 mine[2048]; ret; }\n"
			      ".visible .entry middle() { .local .align 4 .b8 mine[4096]; ret; }\n"
			      ".visible .entry big() { .local .align 4 .b8 mine[524288]; ret; }\n";

static const char without_big[] = ".version 8.0\n.target sm_90\n"
				  ".visible .entry small() { .local .align 4 .b8 a[2048]; ret; }\n"
				  ".visible .entry mid() { .local .align 4 .b8 a[4096]; ret; }\n";

#define SMALL  (1024 * STACK)
#define MIDDLE (3072 * STACK)

static CUmodule module;
static CUlibrary library;

static CUcontext start_with(const char *limit)
{
	CUcontext context = start(limit);

	CHECK_CUDA(cuModuleLoadData(&module, kernels), CUDA_SUCCESS);
	CHECK_CUDA(cuLibraryLoadData(&library, kernels, NULL, NULL, 0, NULL, NULL, 0),
		   CUDA_SUCCESS);
	return context;
}

static CUfunction fetch(const char *name)
{
	CUfunction function;

	CHECK_CUDA(cuModuleGetFunction(&function, module, name), CUDA_SUCCESS);
	return function;
}

static void launch(CUfunction function)
{
	CHECK_CUDA(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_SUCCESS);
}

/* So much is charged for code and local memory; of the latter, so much is taken. */
static void assert_local(uint64_t charged, uint64_t taken)
{
	CHECK_EQUAL(ledger_own(0).module, 2 * MODULE + charged);
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT + 2 * MODULE + taken + ledger_own(0).data);
}

TEST(reserved)
{
	CUfunction middle;

	start_with("2g");
	assert_local(0, 0);
	middle = fetch("middle");
	assert_local(MIDDLE, 0);
	fetch("small"); /* which fits into that */
	rest();
	rest();
	assert_local(MIDDLE, 0);
	launch(middle);
	assert_local(MIDDLE, MIDDLE);
	rest();
	assert_local(MIDDLE, MIDDLE);
	launch(fetch("small"));
	launch(fetch("middle"));
	rest();
	assert_local(MIDDLE, MIDDLE);
}

TEST(in_steps)
{
	CUfunction small, middle;

	start_with("2g");
	small = fetch("small");
	assert_local(SMALL, 0);
	middle = fetch("middle");
	assert_local(MIDDLE, 0);
	launch(small);
	rest();
	assert_local(MIDDLE, SMALL);
	launch(middle);
	rest();
	assert_local(MIDDLE, MIDDLE);
}

TEST(full)
{
	static CUdeviceptr pieces[1024];
	CUfunction middle;
	unsigned count;

	start_with("2g");
	middle = fetch("middle");
	count = fill(pieces, 1024, 8 * MIB);
	CHECK(count > 0 && count < 1024);
	launch(middle);
	CHECK_AT_MOST(outside_used(0), 2 * GIB + GRANULE);
	rest();
	assert_local(MIDDLE, MIDDLE);
	while (count)
		give(pieces[--count]);
}

/* The driver takes the memory of a graph's kernels when the graph is instantiated. */
TEST(taken_by_graph)
{
	CUDA_KERNEL_NODE_PARAMS params = {NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL, NULL};
	CUgraph graph;
	CUgraphNode node;
	CUgraphExec exec;

	start_with("2g");
	params.func = fetch("middle");
	CHECK_CUDA(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
	CHECK_CUDA(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params), CUDA_SUCCESS);
	rest();
	assert_local(MIDDLE, 0);
	CHECK_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
	assert_local(MIDDLE, MIDDLE);
	CHECK_CUDA(cuGraphLaunch(exec, NULL), CUDA_SUCCESS);
	rest();
	assert_local(MIDDLE, MIDDLE);
}

TEST(refused_when_handed_out)
{
	CUfunction function = (CUfunction)UNTOUCHED;
	CUkernel kernel = (CUkernel)UNTOUCHED;

	start_with("4g"); /* 512 KiB of each thread are 132 GiB */
	for (unsigned i = 0; i < 3; i++) {
		CHECK_CUDA(cuModuleGetFunction(&function, module, "big"), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_CUDA(cuLibraryGetKernel(&kernel, library, "big"), CUDA_ERROR_OUT_OF_MEMORY);
		assert_local(0, 0);
	}
	CHECK(function == (CUfunction)UNTOUCHED && kernel == (CUkernel)UNTOUCHED);
	CHECK_CUDA(cuLibraryGetKernel(&kernel, library, "middle"), CUDA_SUCCESS);
	assert_local(MIDDLE, 0);
	CHECK_CUDA(cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
	launch(function);
	rest();
	assert_local(MIDDLE, MIDDLE);
}

/* What the stacks have is there for local memory; and all of it ends with the context. */
TEST(with_stacks)
{
	CUcontext context;

	start_with("2g");
	CHECK_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048), CUDA_SUCCESS);
	rest();
	assert_local(SMALL, SMALL);
	fetch("small");
	assert_local(SMALL, SMALL);
	launch(fetch("middle"));
	rest();
	assert_local(MIDDLE, MIDDLE);
	CHECK_CUDA(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).total, 0);
	CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(context), CUDA_SUCCESS);
	CHECK_CUDA(cuModuleLoadData(&module, kernels), CUDA_SUCCESS);
	fetch("middle");
	CHECK_AT_MOST(MIDDLE, ledger_own(0).module);
}

/* Those that are handed out all at once. */
TEST(enumerated)
{
	CUfunction functions[4] = {0};
	CUkernel kernel[1] = {0};
	CUmodule two;

	start_with("4g");
	functions[0] = (CUfunction)UNTOUCHED;
	CHECK_CUDA(cuModuleEnumerateFunctions(functions, 4, module), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_CUDA(cuLibraryEnumerateKernels((CUkernel *)functions, 4, library),
		   CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(functions[0] == (CUfunction)UNTOUCHED && !functions[1]);
	CHECK_CUDA(cuModuleLoadData(&two, without_big), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).module, 3 * MODULE); /* nothing is left of the refused */
	CHECK_CUDA(cuLibraryEnumerateKernels(kernel, 1, library), CUDA_SUCCESS);
	CHECK_CUDA(cuModuleEnumerateFunctions(functions, 4, two), CUDA_SUCCESS);
	CHECK(functions[0] && functions[1] && !functions[2] && kernel[0]);
	CHECK_EQUAL(ledger_own(0).module, 3 * MODULE + MIDDLE);
	launch(functions[1]);
	rest();
	CHECK_EQUAL(ledger_own(0).module, 3 * MODULE + MIDDLE);
	CHECK_CUDA(cuModuleEnumerateFunctions(NULL, 4, two), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuModuleEnumerateFunctions(functions, 0, two), CUDA_SUCCESS);
	CHECK_CUDA(cuLibraryEnumerateKernels(NULL, 1, library), CUDA_ERROR_INVALID_VALUE);
}

/* One that the driver has not loaded, of which it does not tell the local memory. */
TEST(loaded_later)
{
	CUfunction functions[2];
	CUmodule two;

	env_set("VGPU_SIM_FAULTS", "cuFuncGetAttribute@1=913,cuFuncGetAttribute@2=913");
	start_with("4g");
	CHECK_CUDA(cuModuleLoadData(&two, without_big), CUDA_SUCCESS);
	CHECK_CUDA(cuModuleEnumerateFunctions(functions, 2, two), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).module, 3 * MODULE);
	CHECK_CUDA(cuFuncLoad(functions[1]), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).module, 3 * MODULE + MIDDLE);
}

/* -- reserved at the launch, or when it is handed out again ------------------------------------ */

static CUresult try_launch(CUkernel kernel)
{
	return cuLaunchKernel((CUfunction)(void *)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static CUkernel fetch_kernel(const char *name)
{
	CUkernel kernel = NULL;

	CHECK_CUDA(cuLibraryGetKernel(&kernel, library, name), CUDA_SUCCESS);
	CHECK(kernel);
	return kernel;
}

/* Nothing is reserved for these two. */
static void fetch_without_context(CUkernel *ret_middle, CUkernel *ret_big)
{
	CUcontext context;

	CHECK_CUDA(cuCtxGetCurrent(&context), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
	*ret_middle = fetch_kernel("middle");
	*ret_big = fetch_kernel("big");
	CHECK_CUDA(cuCtxSetCurrent(context), CUDA_SUCCESS);
	assert_local(0, 0);
}

static void launched_after_no_context(void)
{
	CUkernel middle, big;

	start_with("4g");
	fetch_without_context(&middle, &big);
	for (unsigned i = 0; i < 3; i++) {
		CHECK_CUDA(try_launch(big), CUDA_ERROR_OUT_OF_MEMORY);
		assert_local(0, 0);
	}
	CHECK_CUDA(try_launch(middle), CUDA_SUCCESS);
	assert_local(MIDDLE, MIDDLE);
	rest();
	assert_local(MIDDLE, MIDDLE);
	CHECK_CUDA(try_launch(big), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_CUDA(try_launch(middle), CUDA_SUCCESS);
	assert_local(MIDDLE, MIDDLE);
}

TEST(no_context)
{
	launched_after_no_context();
}

TEST(no_context_with_compute_quota)
{
	env_set("CUDA_DEVICE_SM_LIMIT", "50");
	launched_after_no_context();
}

/* A slice that is full but for less than the kernel's local memory. */
TEST(no_context_and_full)
{
	static CUdeviceptr pieces[1024];
	CUkernel middle, big;
	unsigned count;

	start_with("4g");
	fetch_without_context(&middle, &big);
	count = fill(pieces, 1024, 8 * MIB);
	CHECK(count > 0 && count < 1024);
	CHECK_CUDA(try_launch(middle), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_AT_MOST(outside_used(0), 4 * GIB);
	while (count)
		give(pieces[--count]);
	CHECK_CUDA(try_launch(middle), CUDA_SUCCESS);
	assert_local(MIDDLE, MIDDLE);
}

/* A capture goes on after the refusal, and after the reservation. */
TEST(no_context_and_captured)
{
	CUkernel middle, big;
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	start_with("4g");
	fetch_without_context(&middle, &big);
	CHECK_CUDA(cuStreamCreate(&stream, 1), CUDA_SUCCESS);
	CHECK_CUDA(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
	CHECK_CUDA(cuLaunchKernel((CUfunction)(void *)big, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
		   CUDA_ERROR_OUT_OF_MEMORY);
	assert_local(0, 0);
	CHECK_CUDA(
		cuLaunchKernel((CUfunction)(void *)middle, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
		CUDA_SUCCESS);
	CHECK_CUDA(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	assert_local(MIDDLE, 0);
	CHECK_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
	CHECK_CUDA(cuGraphLaunch(exec, NULL), CUDA_SUCCESS);
	rest();
	assert_local(MIDDLE, MIDDLE);
}

/* Handed out in a context of a GPU without a quota, and launched on one with a quota. */
static CUcontext start_two(CUkernel *ret_middle, CUkernel *ret_big)
{
	CUcontext first, second;

	env_set("VGPU_SIM_GPUS", "2x80G");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_1", "0");
	first = start_with("4g");
	CHECK_CUDA(cuDevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(second), CUDA_SUCCESS);
	*ret_middle = fetch_kernel("middle");
	*ret_big = fetch_kernel("big");
	return first;
}

TEST(other_context)
{
	CUkernel middle, big;
	CUcontext first = start_two(&middle, &big);

	CHECK_CUDA(try_launch(middle), CUDA_SUCCESS); /* on the second GPU */
	CHECK_CUDA(cuCtxSetCurrent(first), CUDA_SUCCESS);
	assert_local(0, 0);
	CHECK_CUDA(try_launch(big), CUDA_ERROR_OUT_OF_MEMORY);
	assert_local(0, 0);
	CHECK_CUDA(try_launch(middle), CUDA_SUCCESS);
	assert_local(MIDDLE, MIDDLE);
	rest();
	assert_local(MIDDLE, MIDDLE);
}

/* The context of a launch is that of its stream. */
TEST(stream_of_other_context)
{
	CUkernel middle, big;
	CUcontext first = start_two(&middle, &big), second, now;
	CUstream stream;

	CHECK_CUDA(cuCtxGetCurrent(&second), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(first), CUDA_SUCCESS);
	CHECK_CUDA(cuStreamCreate(&stream, 1), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxSetCurrent(second), CUDA_SUCCESS);
	CHECK_CUDA(cuLaunchKernel((CUfunction)(void *)big, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
		   CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_CUDA(
		cuLaunchKernel((CUfunction)(void *)middle, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
		CUDA_SUCCESS);
	CHECK_CUDA(cuCtxGetCurrent(&now), CUDA_SUCCESS);
	CHECK(now == second);
	assert_local(MIDDLE, MIDDLE);
}

TEST(fetched_again)
{
	CUkernel middle, big, again = (CUkernel)UNTOUCHED;

	start_with("4g");
	fetch_without_context(&middle, &big);
	CHECK_CUDA(cuLibraryGetKernel(&again, library, "big"), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(again == (CUkernel)UNTOUCHED);
	assert_local(0, 0);
	for (unsigned i = 0; i < 2; i++) {
		CHECK(fetch_kernel("middle") == middle);
		assert_local(MIDDLE, 0);
	}
	CHECK_CUDA(try_launch(big), CUDA_ERROR_OUT_OF_MEMORY); /* it is known still */
	CHECK_CUDA(try_launch(middle), CUDA_SUCCESS);
	rest();
	assert_local(MIDDLE, MIDDLE);
	CHECK(fetch_kernel("middle") == middle);
	assert_local(MIDDLE, MIDDLE);
}

/* The driver tells the local memory of a function that was listed only when the function is loaded,
 * which the program leaves to the launch. */
TEST(enumerated_unloaded)
{
	CUfunction functions[4];

	env_set("VGPU_SIM_FAULTS", "cuFuncGetAttribute@1=913,cuFuncGetAttribute@2=913,"
				   "cuFuncGetAttribute@3=913,cuFuncGetAttribute@4=913,"
				   "cuFuncGetAttribute@6=913");
	start_with("4g");
	CHECK_CUDA(cuModuleEnumerateFunctions(functions, 3, module), CUDA_SUCCESS);
	assert_local(0, 0);
	CHECK_CUDA(cuLaunchKernel(functions[2], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
		   CUDA_ERROR_OUT_OF_MEMORY); /* the fourth question, and the fifth */
	assert_local(0, 0);
	launch(functions[1]);
	assert_local(MIDDLE, MIDDLE);
}
