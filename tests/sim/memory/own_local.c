/* Local memory of kernels, which the driver takes at their first launch: it is reserved when their
 * functions are handed out, and refused then; or at the launch, where the hand-out was too early.
 */
#include "acts.h"
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

	CHECK_OK(cuModuleLoadData(&module, kernels));
	CHECK_OK(cuLibraryLoadData(&library, kernels, NULL, NULL, 0, NULL, NULL, 0));
	return context;
}

static CUresult launch_in(CUstream stream, CUfunction function)
{
	return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

/* So much is charged for code and local memory; of the latter, so much is taken. */
static void assert_local(uint64_t charged, uint64_t taken)
{
	CHECK_EQUAL(ledger_own(0).module, 2 * MODULE + charged);
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT + 2 * MODULE + taken + ledger_own(0).data);
}

/* -- rows of calls ---------------------------------------------------------------------------- */

struct step {
	struct act_call call;
	uint64_t charged, taken; /* see assert_local */
	CUresult result;
};

struct row {
	const char *name;
	const char *limit;
	const char *cores; /* CUDA_DEVICE_SM_LIMIT, or NULL */
	bool two;          /* a second GPU, without a quota, whose context is current */
	struct step steps[ACTS_MAX];
};

enum { small, middle, big, KERNELS };
static const char *const names[KERNELS] = {"small", "middle", "big"};

static CUfunction functions[KERNELS]; /* those that were handed out, or their kernels */
static CUcontext contexts[2];
static CUdeviceptr pieces[1024];
static unsigned pieces_count;
static CUstream stream;
static CUgraph graph;
static CUgraphExec exec;

/* A second query returns the same handle, and a refusal leaves the output alone. */
static CUresult handed_out(const struct act_call *call, CUresult result, void *found)
{
	CHECK((result == CUDA_SUCCESS) == (found != (void *)UNTOUCHED));
	if (result != CUDA_SUCCESS)
		return result;
	CHECK(!functions[call->thing] || functions[call->thing] == found);
	functions[call->thing] = found;
	return result;
}

static CUresult fetch_function(const struct act_call *call)
{
	CUfunction function = (CUfunction)UNTOUCHED;
	CUresult result = cuModuleGetFunction(&function, module, names[call->thing]);

	return handed_out(call, result, function);
}

static CUresult fetch_kernel(const struct act_call *call)
{
	CUkernel kernel = (CUkernel)UNTOUCHED;
	CUresult result = cuLibraryGetKernel(&kernel, library, names[call->thing]);

	return handed_out(call, result, kernel);
}

static CUresult get_function(const struct act_call *call)
{
	CUkernel kernel = (CUkernel)(void *)functions[call->thing];

	return cuKernelGetFunction(&functions[call->thing], kernel);
}

static CUresult fill_slice(const struct act_call *call)
{
	(void)call;
	pieces_count = fill(pieces, 1024, 8 * MIB);
	CHECK(pieces_count > 0 && pieces_count < 1024);
	return CUDA_SUCCESS;
}

static CUresult empty_slice(const struct act_call *call)
{
	(void)call;
	while (pieces_count)
		give(pieces[--pieces_count]);
	return CUDA_SUCCESS;
}

static CUresult add_to_graph(const struct act_call *call)
{
	CUDA_KERNEL_NODE_PARAMS params = {
		functions[call->thing], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL, NULL};
	CUgraphNode node;

	CHECK_OK(cuGraphCreate(&graph, 0));
	return cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params);
}

static CUresult check_current(const struct act_call *call)
{
	CUcontext now;
	CUresult result = cuCtxGetCurrent(&now);

	CHECK(now == contexts[call->size]);
	return result;
}

static ACT(launch_function, launch_in(NULL, functions[call->thing]));
static ACT(launch_in_stream, launch_in(stream, functions[call->thing]));
static ACT(rest_once, (rest(), CUDA_SUCCESS));
static ACT(leave_context, cuCtxSetCurrent(NULL));
static ACT(enter_context, cuCtxSetCurrent(contexts[call->size]));
static ACT(make_stream, cuStreamCreate(&stream, 1));
static ACT(begin_capture, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
static ACT(end_capture, cuStreamEndCapture(stream, &graph));
static ACT(instantiate, cuGraphInstantiateWithFlags(&exec, graph, 0));
static ACT(launch_graph, cuGraphLaunch(exec, NULL));

static void play(const struct row *row)
{
	env_set("CUDA_DEVICE_SM_LIMIT", row->cores);
	if (row->two) {
		env_set("VGPU_SIM_GPUS", "2x80G");
		env_set("CUDA_DEVICE_MEMORY_LIMIT_1", "0");
	}
	contexts[0] = start_with(row->limit);
	if (row->two)
		contexts[1] = cuda_start(1);
	for (const struct step *step = row->steps; step < row->steps + ACTS_MAX && step->call.make;
	     step++) {
		CUresult result = step->call.make(&step->call);
		uint64_t charged = ledger_own(0).module - 2 * MODULE;
		uint64_t taken =
			outside_of(0, getpid()) - CONTEXT - 2 * MODULE - ledger_own(0).data;

		CHECK_SAYING(result == step->result && charged == step->charged &&
				     taken == step->taken,
			     "%s, step %u: result %d, %llu bytes charged and %llu taken", row->name,
			     (unsigned)(step - row->steps), (int)result,
			     (unsigned long long)charged, (unsigned long long)taken);
		CHECK_AT_MOST(outside_used(0), ledger()->hami.limit[ledger_index(0)]);
	}
}

/* clang-format off */
#define FETCH(kernel)        {fetch_function, kernel, NONE, 0, 0} /* of the module */
#define FETCH_KERNEL(kernel) {fetch_kernel, kernel, NONE, 0, 0} /* of the library */
#define GET_FUNCTION(kernel) {get_function, kernel, NONE, 0, 0} /* of the kernel */
#define LAUNCH(kernel)       {launch_function, kernel, NONE, 0, 0}
#define LAUNCH_IN_STREAM(kernel) {launch_in_stream, kernel, NONE, 0, 0}
#define REST                 {rest_once, NONE, NONE, 0, 0}
#define FILL                 {fill_slice, NONE, NONE, 0, 0}
#define EMPTY                {empty_slice, NONE, NONE, 0, 0}
#define LEAVE_CONTEXT        {leave_context, NONE, NONE, 0, 0}
#define ENTER(gpu)           {enter_context, NONE, NONE, 0, gpu}
#define CURRENT_IS(gpu)      {check_current, NONE, NONE, 0, gpu}
#define MAKE_STREAM          {make_stream, NONE, NONE, 0, 0}
#define BEGIN_CAPTURE        {begin_capture, NONE, NONE, 0, 0}
#define END_CAPTURE          {end_capture, NONE, NONE, 0, 0}
#define ADD_TO_GRAPH(kernel) {add_to_graph, kernel, NONE, 0, 0}
#define INSTANTIATE          {instantiate, NONE, NONE, 0, 0}
#define LAUNCH_GRAPH         {launch_graph, NONE, NONE, 0, 0}

static const struct row handed[] = {
	{"reserved", "2g", .steps = { /* small fits into what is reserved for middle */
		{FETCH(middle), MIDDLE, 0}, {FETCH(small), MIDDLE, 0}, {REST, MIDDLE, 0},
		{REST, MIDDLE, 0}, {LAUNCH(middle), MIDDLE, MIDDLE}, {REST, MIDDLE, MIDDLE},
		{FETCH(small), MIDDLE, MIDDLE}, {LAUNCH(small), MIDDLE, MIDDLE},
		{FETCH(middle), MIDDLE, MIDDLE}, {LAUNCH(middle), MIDDLE, MIDDLE},
		{REST, MIDDLE, MIDDLE}}},
	{"in_steps", "2g", .steps = {
		{FETCH(small), SMALL, 0}, {FETCH(middle), MIDDLE, 0}, {LAUNCH(small), MIDDLE, SMALL},
		{REST, MIDDLE, SMALL}, {LAUNCH(middle), MIDDLE, MIDDLE}, {REST, MIDDLE, MIDDLE}}},
	{"full", "2g", .steps = {
		{FETCH(middle), MIDDLE, 0}, {FILL, MIDDLE, 0}, {LAUNCH(middle), MIDDLE, MIDDLE},
		{REST, MIDDLE, MIDDLE}}},
	/* The driver takes the memory of a graph's kernels when the graph is instantiated. */
	{"taken_by_graph", "2g", .steps = {
		{FETCH(middle), MIDDLE, 0}, {ADD_TO_GRAPH(middle), MIDDLE, 0}, {REST, MIDDLE, 0},
		{INSTANTIATE, MIDDLE, MIDDLE}, {LAUNCH_GRAPH, MIDDLE, MIDDLE},
		{REST, MIDDLE, MIDDLE}}},
	/* 512 KiB of each thread are 132 GiB. */
	{"refused_when_handed_out", "4g", .steps = {
		{FETCH(big), 0, 0, NO_ROOM}, {FETCH_KERNEL(big), 0, 0, NO_ROOM},
		{FETCH(big), 0, 0, NO_ROOM}, {FETCH_KERNEL(big), 0, 0, NO_ROOM},
		{FETCH(big), 0, 0, NO_ROOM}, {FETCH_KERNEL(big), 0, 0, NO_ROOM},
		{FETCH_KERNEL(middle), MIDDLE, 0}, {GET_FUNCTION(middle), MIDDLE, 0},
		{LAUNCH(middle), MIDDLE, MIDDLE}, {REST, MIDDLE, MIDDLE}}},
};
TEST_TABLE(handed, play);

/* Nothing is reserved for kernels that are handed out without a context. */
#define WITHOUT_CONTEXT                                                                  \
	{LEAVE_CONTEXT, 0, 0}, {FETCH_KERNEL(middle), 0, 0}, {FETCH_KERNEL(big), 0, 0},  \
		{ENTER(0), 0, 0}
#define AT_LAUNCH                                                                        \
	WITHOUT_CONTEXT, {LAUNCH(big), 0, 0, NO_ROOM}, {LAUNCH(big), 0, 0, NO_ROOM},     \
		{LAUNCH(big), 0, 0, NO_ROOM}, {LAUNCH(middle), MIDDLE, MIDDLE},          \
		{REST, MIDDLE, MIDDLE}, {LAUNCH(big), MIDDLE, MIDDLE, NO_ROOM},          \
		{LAUNCH(middle), MIDDLE, MIDDLE}
/* Nor for those that are handed out in the context of a GPU without a quota. */
#define ON_SECOND {FETCH_KERNEL(middle), 0, 0}, {FETCH_KERNEL(big), 0, 0}

static const struct row launched[] = {
	{"no_context", "4g", .steps = {AT_LAUNCH}},
	{"no_context_with_compute_quota", "4g", .cores = "50", .steps = {AT_LAUNCH}},
	/* The slice has less room than the kernel's local memory. */
	{"no_context_and_full", "4g", .steps = {
		WITHOUT_CONTEXT, {FILL, 0, 0}, {LAUNCH(middle), 0, 0, NO_ROOM}, {EMPTY, 0, 0},
		{LAUNCH(middle), MIDDLE, MIDDLE}}},
	/* A capture goes on after the refusal, and after the reservation. */
	{"no_context_and_captured", "4g", .steps = {
		WITHOUT_CONTEXT, {MAKE_STREAM, 0, 0}, {BEGIN_CAPTURE, 0, 0},
		{LAUNCH_IN_STREAM(big), 0, 0, NO_ROOM}, {LAUNCH_IN_STREAM(middle), MIDDLE, 0},
		{END_CAPTURE, MIDDLE, 0}, {INSTANTIATE, MIDDLE, MIDDLE},
		{LAUNCH_GRAPH, MIDDLE, MIDDLE}, {REST, MIDDLE, MIDDLE}}},
	{"other_context", "4g", .two = true, .steps = {
		ON_SECOND, {LAUNCH(middle), 0, 0}, {ENTER(0), 0, 0}, {LAUNCH(big), 0, 0, NO_ROOM},
		{LAUNCH(middle), MIDDLE, MIDDLE}, {REST, MIDDLE, MIDDLE}}},
	/* The context of a launch is that of its stream. */
	{"stream_of_other_context", "4g", .two = true, .steps = {
		ON_SECOND, {ENTER(0), 0, 0}, {MAKE_STREAM, 0, 0}, {ENTER(1), 0, 0},
		{LAUNCH_IN_STREAM(big), 0, 0, NO_ROOM}, {LAUNCH_IN_STREAM(middle), MIDDLE, MIDDLE},
		{CURRENT_IS(1), MIDDLE, MIDDLE}}},
	/* A kernel that is known is refused as one that is not, and stays known. */
	{"fetched_again", "4g", .steps = {
		WITHOUT_CONTEXT, {FETCH_KERNEL(big), 0, 0, NO_ROOM},
		{FETCH_KERNEL(middle), MIDDLE, 0}, {FETCH_KERNEL(middle), MIDDLE, 0},
		{LAUNCH(big), MIDDLE, 0, NO_ROOM}, {LAUNCH(middle), MIDDLE, MIDDLE},
		{REST, MIDDLE, MIDDLE}, {FETCH_KERNEL(middle), MIDDLE, MIDDLE}}},
};
TEST_TABLE(launched, play);
/* clang-format on */

/* -- other ways to hand out ------------------------------------------------------------------- */

static CUfunction fetch(const char *name)
{
	CUfunction function;

	CHECK_OK(cuModuleGetFunction(&function, module, name));
	return function;
}

/* What the stacks have is there for local memory; and all of it ends with the context. */
TEST(with_stacks)
{
	start_with("2g");
	CHECK_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
	rest();
	assert_local(SMALL, SMALL);
	fetch("small");
	assert_local(SMALL, SMALL);
	launch(fetch("middle"));
	rest();
	assert_local(MIDDLE, MIDDLE);
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	CHECK_EQUAL(ledger_own(0).total, 0);
	cuda_start(0);
	CHECK_OK(cuModuleLoadData(&module, kernels));
	fetch("middle");
	CHECK_AT_MOST(MIDDLE, ledger_own(0).module);
}

/* Those that are handed out all at once. */
TEST(enumerated)
{
	CUfunction listed[4] = {0};
	CUkernel kernel[1] = {0};
	CUmodule two;

	start_with("4g");
	listed[0] = (CUfunction)UNTOUCHED;
	CHECK_EQUAL(cuModuleEnumerateFunctions(listed, 4, module), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(cuLibraryEnumerateKernels((CUkernel *)listed, 4, library),
		    CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(listed[0] == (CUfunction)UNTOUCHED && !listed[1]);
	CHECK_OK(cuModuleLoadData(&two, without_big));
	CHECK_EQUAL(ledger_own(0).module, 3 * MODULE); /* nothing is left of the refused */
	CHECK_OK(cuLibraryEnumerateKernels(kernel, 1, library));
	CHECK_OK(cuModuleEnumerateFunctions(listed, 4, two));
	CHECK(listed[0] && listed[1] && !listed[2] && kernel[0]);
	CHECK_EQUAL(ledger_own(0).module, 3 * MODULE + MIDDLE);
	launch(listed[1]);
	rest();
	CHECK_EQUAL(ledger_own(0).module, 3 * MODULE + MIDDLE);
	CHECK_EQUAL(cuModuleEnumerateFunctions(NULL, 4, two), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuModuleEnumerateFunctions(listed, 0, two));
	CHECK_EQUAL(cuLibraryEnumerateKernels(NULL, 1, library), CUDA_ERROR_INVALID_VALUE);
}

/* One that the driver has not loaded, of which it does not tell the local memory. */
TEST(loaded_later)
{
	CUfunction listed[2];
	CUmodule two;

	env_set("VGPU_SIM_FAULTS", "cuFuncGetAttribute@1=913,cuFuncGetAttribute@2=913");
	start_with("4g");
	CHECK_OK(cuModuleLoadData(&two, without_big));
	CHECK_OK(cuModuleEnumerateFunctions(listed, 2, two));
	CHECK_EQUAL(ledger_own(0).module, 3 * MODULE);
	CHECK_OK(cuFuncLoad(listed[1]));
	CHECK_EQUAL(ledger_own(0).module, 3 * MODULE + MIDDLE);
}

/* The driver tells the local memory of a function that was listed only when the function is loaded,
 * which the program leaves to the launch. */
TEST(enumerated_unloaded)
{
	CUfunction listed[4];

	env_set("VGPU_SIM_FAULTS", "cuFuncGetAttribute@1=913,cuFuncGetAttribute@2=913,"
				   "cuFuncGetAttribute@3=913,cuFuncGetAttribute@4=913,"
				   "cuFuncGetAttribute@6=913");
	start_with("4g");
	CHECK_OK(cuModuleEnumerateFunctions(listed, 3, module));
	assert_local(0, 0);
	CHECK_EQUAL(launch_in(NULL, listed[2]),
		    CUDA_ERROR_OUT_OF_MEMORY); /* the fourth question, and the fifth */
	assert_local(0, 0);
	launch(listed[1]);
	assert_local(MIDDLE, MIDDLE);
}
