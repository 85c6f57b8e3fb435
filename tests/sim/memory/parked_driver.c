/*
 * Memory that the driver takes for itself, for contexts, stacks, code and local memory: the calls
 * that make it take and give back such memory, parked in the driver.
 */
#include "parked_fixture.h"

#define STACK_BYTES 1536 /* 512 more than at first, for each thread that the GPU can have */
#define STACK_MIB   132

static void nothing(void)
{
}

/* -- contexts: a further one takes 518 MiB, and 6 that are in no process's figure -------------- */

#define FURTHER 524

static CUcontext first, made;

static CUresult create_context(void)
{
	return cuCtxCreate(&made, 0, 0);
}

static CUresult create_context_v2(void)
{
	return cuCtxCreate_v2(&made, 0, 0);
}

static CUresult create_context_v3(void)
{
	return cuCtxCreate_v3(&made, NULL, 0, 0, 0);
}

static CUresult create_context_v4(void)
{
	return cuCtxCreate_v4(&made, NULL, 0, 0);
}

static CUresult create_gl(void)
{
	return cuGLCtxCreate(&made, 0, 0);
}

static CUresult create_gl_v2(void)
{
	return cuGLCtxCreate_v2(&made, 0, 0);
}

static CUresult create_vdpau(void)
{
	return cuVDPAUCtxCreate(&made, 0, 0, 0, NULL);
}

static CUresult create_vdpau_v2(void)
{
	return cuVDPAUCtxCreate_v2(&made, 0, 0, 0, NULL);
}

static CUresult retain_primary(void)
{
	return cuDevicePrimaryCtxRetain(&made, 0);
}

static CUresult destroy_context(void)
{
	return cuCtxDestroy(made);
}

static CUresult destroy_context_v2(void)
{
	return cuCtxDestroy_v2(made);
}

static CUresult detach_context(void)
{
	return cuCtxDetach(made);
}

static CUresult release_primary(void)
{
	return cuDevicePrimaryCtxRelease(0);
}

static CUresult release_primary_v2(void)
{
	return cuDevicePrimaryCtxRelease_v2(0);
}

static CUresult reset_primary(void)
{
	return cuDevicePrimaryCtxReset(0);
}

static CUresult reset_primary_v2(void)
{
	return cuDevicePrimaryCtxReset_v2(0);
}

static void with_context(void)
{
	CHECK_OK(cuCtxGetCurrent(&first));
	CHECK_OK(create_context_v2());
	CHECK_OK(cuCtxSetCurrent(first));
}

/* Another context is current. The primary one is there, or has ended. */
static void with_primary(void)
{
	CHECK_OK(create_context_v2());
}

static void without_primary(void)
{
	with_primary();
	first = made;
	CHECK_OK(release_primary_v2());
}

static void end_context(void)
{
	CHECK_OK(destroy_context_v2());
}

#define MADE(row, function, does) \
	PARKED(row, function "@1", .make = does, .undo = end_context, TAKES(FURTHER))
#define ENDED(row, function, before, does, after) \
	PARKED(row, function, .prepare = before, .make = does, .undo = after, GIVES(FURTHER))

static const struct parked_row contexts[] = {
	MADE("create", "cuCtxCreate", create_context),
	MADE("create_v2", "cuCtxCreate_v2", create_context_v2),
	MADE("create_v3", "cuCtxCreate_v3", create_context_v3),
	MADE("create_v4", "cuCtxCreate_v4", create_context_v4),
	MADE("gl", "cuGLCtxCreate", create_gl),
	MADE("gl_v2", "cuGLCtxCreate_v2", create_gl_v2),
	MADE("vdpau", "cuVDPAUCtxCreate", create_vdpau),
	MADE("vdpau_v2", "cuVDPAUCtxCreate_v2", create_vdpau_v2),
	PARKED("retain", "cuDevicePrimaryCtxRetain@2", .prepare = without_primary,
	       .make = retain_primary, TAKES(FURTHER)),
	ENDED("destroy", "cuCtxDestroy@1", with_context, destroy_context, nothing),
	ENDED("destroy_v2", "cuCtxDestroy_v2@1", with_context, destroy_context_v2, nothing),
	ENDED("detach", "cuCtxDetach@1", with_context, detach_context, nothing),
	ENDED("release", "cuDevicePrimaryCtxRelease@1", with_primary, release_primary, NULL),
	ENDED("release_v2", "cuDevicePrimaryCtxRelease_v2@1", with_primary, release_primary_v2,
	      NULL),
	ENDED("reset", "cuDevicePrimaryCtxReset@1", with_primary, reset_primary, NULL),
	ENDED("reset_v2", "cuDevicePrimaryCtxReset_v2@1", with_primary, reset_primary_v2, NULL),
};
TEST_TABLE(contexts, parked_play);

/* -- green contexts: one of 8 multiprocessors takes 4 MiB, which the primary context keeps ----- */

static CUdevResourceDesc share;
static CUgreenCtx green;

static CUresult create_green(void)
{
	return cuGreenCtxCreate(&green, share, 0, 1);
}

static CUresult destroy_green(void)
{
	return cuGreenCtxDestroy(green);
}

static void with_share(void)
{
	CUdevResource all, part;
	unsigned groups = 1;

	CHECK_OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	CHECK_OK(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 8));
	CHECK_OK(cuDevResourceGenerateDesc(&share, &part, 1));
}

static void with_green(void)
{
	with_share();
	CHECK_OK(create_green());
	parked_compare(); /* before that, what was reserved is charged */
}

/* -- stacks ------------------------------------------------------------------------------------ */

static CUresult set_stack(void)
{
	return cuCtxSetLimit(CU_LIMIT_STACK_SIZE, STACK_BYTES);
}

static CUresult lower_stack(void)
{
	return cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024);
}

static void with_stack(void)
{
	CHECK_OK(set_stack());
}

static void end_stack(void)
{
	CHECK_OK(lower_stack());
}

static const struct parked_row itself[] = {
	/* How much it takes is not known before: 128 MiB are reserved. */
	PARKED("green", "cuGreenCtxCreate@1", .prepare = with_share, .make = create_green,
	       .takes = 4, .charges = 4, .reserves = 128),
	PARKED("end_green", "cuGreenCtxDestroy@1", .prepare = with_green, .make = destroy_green),
	PARKED("stack", "cuCtxSetLimit@1", .make = set_stack, .undo = end_stack, TAKES(STACK_MIB)),
	PARKED("lower_stack", "cuCtxSetLimit@2", .prepare = with_stack, .make = lower_stack,
	       .undo = nothing, GIVES(STACK_MIB), .found = true),
};
TEST_TABLE(itself, parked_play);

/* -- code: a module takes 20 MiB, which is known when it is loaded ----------------------------- */

static const char code[] = ".version 8.0\n.target sm_90\n.visible .entry nothing() { ret; }\n";
static const char variable[] = ".version 8.0\n.target sm_90\n.visible .global .b8 bytes[1];\n";
static const char managed[] = ".version 8.0\n.target sm_90\n"
			      ".visible .global .attribute(.managed) .b8 bytes[1];\n";
static CUmodule module;
static CUlibrary library;

static CUresult load_file(void)
{
	scene_write("code.ptx", code);
	return cuModuleLoad(&module, scene_path("code.ptx"));
}

static CUresult load_data(void)
{
	return cuModuleLoadData(&module, code);
}

static CUresult load_with_options(void)
{
	return cuModuleLoadDataEx(&module, code, 0, NULL, NULL);
}

static CUresult load_fatbin(void)
{
	return cuModuleLoadFatBinary(&module, code);
}

static CUresult load_library(void)
{
	return cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0);
}

static CUresult load_library_file(void)
{
	scene_write("code.ptx", code);
	return cuLibraryLoadFromFile(&library, scene_path("code.ptx"), NULL, NULL, 0, NULL, NULL,
				     0);
}

/* Where no context is current, a library takes nothing yet. */
static void load_unused(const char *image)
{
	CUcontext context;

	CHECK_OK(cuCtxGetCurrent(&context));
	CHECK_OK(cuCtxSetCurrent(NULL));
	CHECK_OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
	CHECK_OK(cuCtxSetCurrent(context));
}

static void with_unused_library(void)
{
	load_unused(variable);
}

static void with_unused_managed(void)
{
	load_unused(managed);
}

static void with_managed_module(void)
{
	CHECK_OK(cuModuleLoadData(&module, managed));
	parked_compare(); /* until then, its variable counts as code */
}

static CUresult find_variable(void)
{
	CUdeviceptr address;

	return cuLibraryGetGlobal(&address, NULL, library, "bytes");
}

static CUresult find_managed(void)
{
	CUdeviceptr address;

	return cuLibraryGetManaged(&address, NULL, library, "bytes");
}

static CUresult find_in_module(void)
{
	CUdeviceptr address;

	return cuModuleGetGlobal_v2(&address, NULL, module, "bytes");
}

static CUresult find_low(void)
{
	CUdeviceptr_v1 address;

	return cuModuleGetGlobal(&address, NULL, module, "bytes");
}

static CUresult unload_module(void)
{
	return cuModuleUnload(module);
}

static CUresult unload_library(void)
{
	return cuLibraryUnload(library);
}

static void with_module(void)
{
	CHECK_OK(load_data());
}

static void with_library(void)
{
	CHECK_OK(load_library());
}

static void end_module(void)
{
	CHECK_OK(unload_module());
}

static void end_library(void)
{
	CHECK_OK(unload_library());
}

#define CODE .env = {"VGPU_SIM_MODULE_MIB", "20"}
#define LOADED(row, function, does, after)                                                        \
	PARKED(row, function "@1", CODE, .make = does, .undo = after, .takes = 20, .charges = 20, \
	       .leaves = 20, .beyond = 20),                                                       \
	{                                                                                         \
		.name = row "_full", .call = function "@1", CODE, .make = does, .undo = nothing,  \
		.result = CUDA_ERROR_OUT_OF_MEMORY, .beyond = 20                                  \
	}
#define CHUNK_MIB 128 /* by which managed memory is charged */
#define FOUND(row, function, does)                                                \
	PARKED(row, function, CODE, .prepare = with_managed_module, .make = does, \
	       .undo = end_module, .charges = CHUNK_MIB, .leaves = CHUNK_MIB)
#define USED(row, function, does)                                                 \
	PARKED(row, function, CODE, .prepare = with_unused_library, .make = does, \
	       .undo = end_library, .takes = 22, .charges = 22, .leaves = 22, .beyond = 22)

/* While the driver has loaded it, a comparison may charge it at any time. So the slice is only
 * filled before that. */
static const struct parked_row of_code[] = {
	LOADED("file", "cuModuleLoad", load_file, end_module),
	LOADED("data", "cuModuleLoadData", load_data, end_module),
	LOADED("options", "cuModuleLoadDataEx", load_with_options, end_module),
	LOADED("fatbin", "cuModuleLoadFatBinary", load_fatbin, end_module),
	LOADED("library", "cuLibraryLoadData", load_library, end_library),
	LOADED("library_file", "cuLibraryLoadFromFile", load_library_file, end_library),
	USED("variable", "cuLibraryGetGlobal@1", find_variable),
	PARKED("managed_variable", "cuLibraryGetManaged@1", CODE, .prepare = with_unused_managed,
	       .make = find_managed, .undo = end_library, .takes = 22, .charges = 20 + CHUNK_MIB,
	       .leaves = 20 + CHUNK_MIB, .beyond = 22),
	FOUND("module_variable", "cuModuleGetGlobal_v2@1", find_in_module),
	FOUND("module_variable_low", "cuModuleGetGlobal@1", find_low),
	PARKED("unload", "cuModuleUnload@1", CODE, .prepare = with_module, .make = unload_module,
	       .undo = nothing, GIVES(20), .found = true, .later = true),
	PARKED("unload_library", "cuLibraryUnload@1", CODE, .prepare = with_library,
	       .make = unload_library, .undo = nothing, GIVES(20), .found = true, .later = true),
};
TEST_TABLE(of_code, parked_play);

/* -- local memory of kernels: 264 MiB, reserved when the function is handed out ---------------- */

#define LOCAL_MIB 264

static const char kernel[] = ".version 8.0\n.target sm_90\n"
			     ".visible .entry small() { .local .align 4 .b8 mine[2048]; ret; }\n";
static CUfunction function;

static CUresult get_function(void)
{
	return cuModuleGetFunction(&function, module, "small");
}

static CUresult enumerate_functions(void)
{
	return cuModuleEnumerateFunctions(&function, 1, module);
}

static CUkernel kernel_handle;

static CUresult get_kernel(void)
{
	return cuLibraryGetKernel(&kernel_handle, library, "small");
}

static CUresult enumerate_kernels(void)
{
	return cuLibraryEnumerateKernels(&kernel_handle, 1, library);
}

/* The handle was handed out while no context was current, and nothing was reserved. */
static void with_kernel_handle(void)
{
	CUcontext context;

	CHECK_OK(cuCtxGetCurrent(&context));
	CHECK_OK(cuLibraryLoadData(&library, kernel, NULL, NULL, 0, NULL, NULL, 0));
	CHECK_OK(cuCtxSetCurrent(NULL));
	CHECK_OK(get_kernel());
	CHECK_OK(cuCtxSetCurrent(context));
}

static CUresult function_of_kernel(void)
{
	return cuKernelGetFunction(&function, kernel_handle);
}

static CUresult load_function(void)
{
	return cuFuncLoad(function);
}

static CUresult module_of_library(void)
{
	return cuLibraryGetModule(&module, library);
}

static void with_kernels(void)
{
	CHECK_OK(cuLibraryLoadData(&library, kernel, NULL, NULL, 0, NULL, NULL, 0));
}

static CUresult launch(void)
{
	return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static CUresult launch_ptsz(void)
{
	return cuLaunchKernel_ptsz(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static void with_kernel(void)
{
	CHECK_OK(cuModuleLoadData(&module, kernel));
}

static void with_function(void)
{
	with_kernel();
	CHECK_OK(get_function());
}

#define HANDED_OUT(row, called, before, does)                                           \
	PARKED(row, called "@1", .prepare = before, .make = does, .charges = LOCAL_MIB, \
	       .leaves = LOCAL_MIB)

static const struct parked_row local[] = {
	HANDED_OUT("function", "cuModuleGetFunction", with_kernel, get_function),
	HANDED_OUT("functions", "cuModuleEnumerateFunctions", with_kernel, enumerate_functions),
	HANDED_OUT("kernel", "cuLibraryGetKernel", with_kernels, get_kernel),
	HANDED_OUT("kernels", "cuLibraryEnumerateKernels", with_kernels, enumerate_kernels),
	HANDED_OUT("of_kernel", "cuKernelGetFunction", with_kernel_handle, function_of_kernel),
	/* It is reserved already. */
	PARKED("load", "cuFuncLoad@1", .prepare = with_function, .make = load_function),
	PARKED("module", "cuLibraryGetModule@1", .prepare = with_kernels,
	       .make = module_of_library),
	PARKED("hand_out_full", "cuModuleGetFunction@1", .prepare = with_kernel,
	       .make = get_function, .result = CUDA_ERROR_OUT_OF_MEMORY),
	PARKED("launch", "cuLaunchKernel@1", .prepare = with_function, .make = launch,
	       .takes = LOCAL_MIB),
	PARKED("launch_ptsz", "cuLaunchKernel_ptsz@1", .prepare = with_function,
	       .make = launch_ptsz, .takes = LOCAL_MIB),
};
TEST_TABLE(local, parked_play);
