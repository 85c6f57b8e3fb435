/* Kernels of libraries for collectives make a member of the device that they are launched to. */
#include "gang.h"

/* Each as it may stand in a library's code: by itself, and as C++ has it. */
#define NCCL_PLAIN "ncclKernel_AllReduce_RING_LL_Sum_float"
#define NCCL_MANGLED \
	"_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"
#define NCCL_STATIC "_ZL20ncclDevKernel_Generic"
#define NVSHMEM     "nvshmemi_barrier_all_kernel"
#define MSCCLPP     "_ZN7mscclpp15executionKernelItEEvPT_"

static CUmodule loaded(const char *kernel)
{
	char ptx[512];
	CUmodule module = NULL;

	snprintf(ptx, sizeof(ptx), ".version 7.0\n.entry %s() { ret; }\n", kernel);
	CHECK_OK(cuModuleLoadData(&module, ptx));
	return module;
}

static CUfunction function_of(CUmodule module, const char *kernel)
{
	CUfunction function = NULL;

	CHECK_OK(cuModuleGetFunction(&function, module, kernel));
	return function;
}

static CUfunction function(const char *kernel)
{
	return function_of(loaded(kernel), kernel);
}

static void launch(CUfunction what, CUstream stream)
{
	CHECK_OK(cuLaunchKernel(what, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

static void start(void)
{
	machine("50");
	start_all();
}

static const struct named {
	const char *name, *kernel;
} kernels[] = {
	{"nccl", NCCL_PLAIN}, {"nccl_mangled", NCCL_MANGLED}, {"nccl_static", NCCL_STATIC},
	{"nvshmem", NVSHMEM}, {"mscclpp", MSCCLPP},
};

/* Loaded and asked for in the second's context, launched there. */
static void makes_member(const struct named *row)
{
	CUfunction found;

	start();
	use(1);
	found = function(row->kernel);
	CHECK_EQUAL(members(), 0);
	launch(found, NULL);
	CHECK_EQUAL(members_of(getpid()), 2);
	CHECK_EQUAL(members(), 2);
}

TEST_TABLE(kernels, makes_member);

TEST(other_names)
{
	static const char *const others[] = {"no_nccl",      "ncc",
					     "_ncclKernel",  "_Z3ncc8ncclType",
					     "_ZN2at4ncclE", "_Z13cross_reduce_P15ncclDevComm",
					     "_Z",           "_ZN",
					     "Nccl"};

	start();
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		launch(function(others[i]), NULL);
	CHECK_EQUAL(members(), 0);
}

/* As the runtime finds kernels: in a library, which has no context; the kernel's handle does for a
 * function's. */
static CUkernel kernel_of(const char *name)
{
	CUlibrary library;
	CUkernel kernel;
	char ptx[512];

	snprintf(ptx, sizeof(ptx), ".version 7.0\n.entry %s() { ret; }\n.entry other() { ret; }\n",
		 name);
	CHECK_OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
	CHECK_OK(cuLibraryGetKernel(&kernel, library, "other"));
	launch((CUfunction)(void *)kernel, NULL);
	CHECK_OK(cuLibraryGetKernel(&kernel, library, name));
	return kernel;
}

TEST(library_kernel)
{
	CUkernel kernel;

	start();
	kernel = kernel_of(NCCL_PLAIN);
	CHECK_EQUAL(members(), 0);
	launch((CUfunction)(void *)kernel, NULL);
	CHECK_EQUAL(members(), 1);
	use(2);
	launch((CUfunction)(void *)kernel, NULL);
	CHECK_EQUAL(members(), 1 | 4);
}

TEST(library_function)
{
	CUfunction found;

	start();
	CHECK_OK(cuKernelGetFunction(&found, kernel_of(NCCL_MANGLED)));
	CHECK_EQUAL(members(), 0);
	launch(found, NULL);
	CHECK_EQUAL(members(), 1);
}

/* Other functions that launch. */
TEST(extended)
{
	CUlaunchConfig config = {.gridDimX = 1,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = 1,
				 .blockDimY = 1,
				 .blockDimZ = 1};

	start();
	CHECK_OK(cuLaunchKernelEx(&config, function(NCCL_PLAIN), NULL, NULL));
	CHECK_EQUAL(members(), 1);
	use(1);
	CHECK_OK(cuLaunchCooperativeKernel(function(NCCL_PLAIN), 1, 1, 1, 1, 1, 1, 0, NULL, NULL));
	CHECK_EQUAL(members(), 1 | 2);
}

/* The handle of code that is unloaded may be another kernel's next. */
TEST(handle_again)
{
	CUfunction before, after;
	CUmodule module;

	start();
	for (unsigned i = 0; i < 100; i++) {
		module = loaded(NCCL_PLAIN);
		before = function_of(module, NCCL_PLAIN);
		CHECK_OK(cuModuleUnload(module));
		module = loaded("plain");
		after = function_of(module, "plain");
		launch(after, NULL);
		CHECK_EQUAL(members(), 0);
		CHECK_OK(cuModuleUnload(module));
		if (after == before)
			return;
	}
	puts("  no handle came again");
}

/* More handles than are kept; whatever becomes of the last ones, the first are known. */
TEST(many_kernels)
{
	CUfunction first;

	start();
	first = function(NCCL_PLAIN);
	for (unsigned i = 0; i < 10000; i++)
		function(NCCL_MANGLED);
	CHECK_EQUAL(members(), 0);
	launch(first, NULL);
	CHECK_EQUAL(members(), 1);
}

/* A graph that a collective is captured in: when it is launched. */
TEST(captured)
{
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	start();
	use(1);
	CHECK_OK(cuStreamCreate(&stream, NON_BLOCKING));
	CHECK_EQUAL(members(), 0); /* it has a limit, and knows that */
	CHECK_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	launch(function(NCCL_PLAIN), stream);
	CHECK_OK(cuStreamEndCapture(stream, &graph));
	CHECK_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK_EQUAL(members_of(getpid()), 0);
	CHECK_OK(cuGraphLaunch(exec, stream));
	CHECK_EQUAL(members_of(getpid()), 2);
	CHECK_EQUAL(members(), 2);
}

/* One launch on two devices. */
TEST(on_several_devices)
{
	CUDA_LAUNCH_PARAMS list[2] = {{.gridDimX = 1,
				       .gridDimY = 1,
				       .gridDimZ = 1,
				       .blockDimX = 1,
				       .blockDimY = 1,
				       .blockDimZ = 1}};

	start();
	list[1] = list[0];
	for (unsigned i = 0; i < 2; i++) {
		use((CUdevice)i + 1);
		list[i].function = function("plain");
		CHECK_OK(cuStreamCreate(&list[i].hStream, NON_BLOCKING));
	}
	CHECK_OK(cuLaunchCooperativeKernelMultiDevice(list, 1, 0));
	CHECK_EQUAL(members(), 0);
	CHECK_OK(cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
	CHECK_EQUAL(members(), 2 | 4);
}

/* Without a limit nothing is looked at; with the first launch after there is one it is. */
TEST(no_limit)
{
	CUfunction found;

	machine(NULL);
	start_all();
	found = function(NCCL_PLAIN);
	for (unsigned i = 0; i < 200; i++)
		launch(found, NULL);
	CHECK_EQUAL(members(), 0);
}
