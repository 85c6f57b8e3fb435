/*
 * Code. Loading a module or a library takes device memory for its code and variables, and nothing
 * says how much before the load. So NVML is asked after the load (driver_memory.h), and a module
 * that does not fit is unloaded again and refused. Until then the slice may hold more than its
 * limit.
 *
 * The driver may also load code later, at the first launch of a function (90 MiB on an H200 for a
 * sum in PyTorch; lazy_code.h). The local memory of kernels is reserved beforehand (local.h).
 * Managed variables are charged when their address is looked up (variables.h).
 *
 * A library belongs to no context. Its memory is looked for on the current context's device, when
 * the library is loaded, and when it is first asked for its module or a variable in a context.
 */
#include "code.h"
#include "compare.h"
#include "context.h"
#include "cuda.h"
#include "driver_memory.h"
#include "hooks.h"
#include "launch.h"
#include "lazy_code.h"
#include "local.h"
#include "quota.h"
#include "signs.h"
#include "sys.h"
#include "trace.h"
#include "variables.h"

/* -- handing out functions --------------------------------------------------------------------- */

static CUresult load_now(CUresult result, const void *handle)
{
	if (result == CUDA_SUCCESS)
		lazy_code_loaded(handle);
	return result;
}

/* Whether local memory is to be reserved for a handle that is handed out. It may have been handed
 * out before, while no context or another one was current. */
static bool wants_local(const void *made, enum lazy_code_kind kind, bool *ret_new)
{
	*ret_new = lazy_code_handed_out(made, kind);
	return *ret_new || (lazy_code_any() && lazy_code_is_awaited(made, NULL));
}

static CUresult hand_out_function(CUfunction made, CUfunction *ret_function)
{
	CUresult result = CUDA_SUCCESS;
	bool new;

	if (wants_local(made, LAZY_CODE_ONCE, &new))
		result = local_of_functions(&made, 1);
	if (result == CUDA_SUCCESS)
		*ret_function = made;
	else if (new)
		lazy_code_taken_back(made);
	return result;
}

static CUresult hand_out_kernel(CUkernel made, CUkernel *ret_kernel)
{
	CUresult result = CUDA_SUCCESS;
	bool new;

	if (wants_local(made, LAZY_CODE_PER_CONTEXT, &new))
		result = local_of_kernels(&made, 1);
	if (result == CUDA_SUCCESS)
		*ret_kernel = made;
	else if (new)
		lazy_code_taken_back(made);
	return result;
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
	CUfunction made = NULL;
	CUresult result;

	cuda_bind();
	result = cuda.cuModuleGetFunction(hfunc ? &made : NULL, hmod, name);
	if (result != CUDA_SUCCESS)
		return result;
	signs_name(launch_name(made), name);
	return hand_out_function(made, hfunc);
}

CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
	CUkernel made = NULL;
	CUresult result;

	cuda_bind();
	result = cuda.cuLibraryGetKernel(pKernel ? &made : NULL, library, name);
	if (result != CUDA_SUCCESS)
		return result;
	signs_name(launch_name(made), name);
	return hand_out_kernel(made, pKernel);
}

/* A kernel and its function in the current context have the same code. Programs launch one of the
 * two, and ask for the other again and again. So the code of both is awaited until the driver says
 * that it is loaded. */
static void note_loaded(CUkernel kernel, CUfunction function)
{
	bool awaits_kernel = lazy_code_is_awaited(kernel, NULL);

	if (!awaits_kernel && !lazy_code_is_awaited(function, NULL))
		return;
	if (awaits_kernel && !code_is_loaded(function))
		return;
	lazy_code_launched(kernel, NULL, true);
	lazy_code_launched(function, NULL, true);
}

CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
	CUfunction made = NULL;
	CUresult result;

	cuda_bind();
	result = code_admit_handle(kernel, NULL);
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuKernelGetFunction(pFunc ? &made : NULL, kernel);
	if (result != CUDA_SUCCESS)
		return result;
	signs_name_as(launch_name(made), launch_name(kernel));
	result = hand_out_function(made, pFunc);
	if (result == CUDA_SUCCESS && lazy_code_any())
		note_loaded(kernel, made);
	return result;
}

/* For a function from cuModuleEnumerateFunctions, the driver reports the local memory only here. */
CUresult cuFuncLoad(CUfunction function)
{
	CUresult result;

	cuda_bind();
	result = code_admit_handle(function, NULL);
	if (result != CUDA_SUCCESS)
		return result;
	result = load_now(cuda.cuFuncLoad(function), function);
	return result == CUDA_SUCCESS ? local_of_functions(&function, 1) : result;
}

/* -- handing out all functions of a module ----------------------------------------------------- */

/* Handles that the driver has returned, before the application gets them. */
struct handles {
	void **handle;
	unsigned count;
};

static CUresult make_handles(struct handles *handles, unsigned wanted, unsigned there)
{
	void *address;

	handles->count = wanted < there ? wanted : there;
	if (sys_map_private(handles->count * sizeof(void *), &address) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	handles->handle = address;
	return CUDA_SUCCESS;
}

/* Hands out all handles or none, as the application may launch any of them. */
static CUresult hand_out_handles(const struct handles *handles, enum lazy_code_kind kind,
				 CUresult result, void *ret_handles)
{
	for (unsigned i = 0; i < handles->count && result == CUDA_SUCCESS; i++) {
		lazy_code_handed_out(handles->handle[i], kind);
		((void **)ret_handles)[i] = handles->handle[i];
	}
	sys_unmap(handles->handle, handles->count * sizeof(void *));
	return result;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
	struct handles made;
	unsigned int there = 0;
	CUresult result;

	cuda_bind();
	if (!functions || !numFunctions || !quota_attached() ||
	    cuda.cuModuleGetFunctionCount(&there, mod) != CUDA_SUCCESS || !there)
		return cuda.cuModuleEnumerateFunctions(functions, numFunctions, mod);
	result = make_handles(&made, numFunctions, there);
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuModuleEnumerateFunctions((CUfunction *)made.handle, made.count, mod);
	if (result == CUDA_SUCCESS)
		result = local_of_functions((CUfunction *)made.handle, made.count);
	return hand_out_handles(&made, LAZY_CODE_ONCE, result, functions);
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
	struct handles made;
	unsigned int there = 0;
	CUresult result;

	cuda_bind();
	if (!kernels || !numKernels || !quota_attached() ||
	    cuda.cuLibraryGetKernelCount(&there, lib) != CUDA_SUCCESS || !there)
		return cuda.cuLibraryEnumerateKernels(kernels, numKernels, lib);
	result = make_handles(&made, numKernels, there);
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuLibraryEnumerateKernels((CUkernel *)made.handle, made.count, lib);
	if (result == CUDA_SUCCESS)
		result = local_of_kernels((CUkernel *)made.handle, made.count);
	return hand_out_handles(&made, LAZY_CODE_PER_CONTEXT, result, kernels);
}

/* -- loading and unloading --------------------------------------------------------------------- */

/* The driver has loaded the module. */
static CUresult loaded(struct driver_memory *growth, CUresult result, CUmodule made,
		       CUmodule *ret_module)
{
	if (!driver_memory_end(growth, result)) {
		if (result == CUDA_SUCCESS)
			cuda.cuModuleUnload(made);
		return driver_memory_refuse(growth);
	}
	if (result == CUDA_SUCCESS)
		*ret_module = made;
	return result;
}

static CUresult loaded_library(struct driver_memory *growth, CUresult result, CUlibrary made,
			       CUlibrary *ret_library)
{
	if (!driver_memory_end(growth, result)) {
		if (result == CUDA_SUCCESS)
			cuda.cuLibraryUnload(made);
		return driver_memory_refuse(growth);
	}
	if (result == CUDA_SUCCESS)
		*ret_library = made;
	return result;
}

/* The code is admitted before anything is reserved: at rest, a comparison can lower the accounts.
 */
static CUresult begin(struct driver_memory *growth)
{
	CUresult result = CUDA_SUCCESS;
	CUdevice device;

	cuda_bind();
	if (cuda.cuCtxGetDevice(&device) == CUDA_SUCCESS)
		result = code_admit(device);
	return result == CUDA_SUCCESS ? driver_memory_begin(growth, -1, 0, 0) : result;
}

CUresult cuModuleLoad(CUmodule *module, const char *fname)
{
	struct driver_memory growth;
	CUmodule made = NULL;
	CUresult result = TRACE_CALLED(begin(&growth));

	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuModuleLoad(module ? &made : NULL, fname);
	return loaded(&growth, result, made, module);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	struct driver_memory growth;
	CUmodule made = NULL;
	CUresult result = TRACE_CALLED(begin(&growth));

	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuModuleLoadData(module ? &made : NULL, image);
	return loaded(&growth, result, made, module);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
			    CUjit_option *options, void **optionValues)
{
	struct driver_memory growth;
	CUmodule made = NULL;
	CUresult result = TRACE_CALLED(begin(&growth));

	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuModuleLoadDataEx(module ? &made : NULL, image, numOptions, options,
					 optionValues);
	return loaded(&growth, result, made, module);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
	struct driver_memory growth;
	CUmodule made = NULL;
	CUresult result = TRACE_CALLED(begin(&growth));

	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuModuleLoadFatBinary(module ? &made : NULL, fatCubin);
	return loaded(&growth, result, made, module);
}

static CUresult unloaded(CUresult result)
{
	if (result == CUDA_SUCCESS) {
		variables_refund_ended();
		driver_memory_undone(-1);
	}
	return result;
}

CUresult cuModuleUnload(CUmodule hmod)
{
	trace_call(__func__);
	cuda_bind();
	return unloaded(cuda.cuModuleUnload(hmod));
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
			   void **jitOptionsValues, unsigned int numJitOptions,
			   CUlibraryOption *libraryOptions, void **libraryOptionValues,
			   unsigned int numLibraryOptions)
{
	struct driver_memory growth;
	CUlibrary made = NULL;
	CUresult result = TRACE_CALLED(begin(&growth));

	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuLibraryLoadData(library ? &made : NULL, code, jitOptions, jitOptionsValues,
					numJitOptions, libraryOptions, libraryOptionValues,
					numLibraryOptions);
	return loaded_library(&growth, result, made, library);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
			       void **jitOptionsValues, unsigned int numJitOptions,
			       CUlibraryOption *libraryOptions, void **libraryOptionValues,
			       unsigned int numLibraryOptions)
{
	struct driver_memory growth;
	CUlibrary made = NULL;
	CUresult result = TRACE_CALLED(begin(&growth));

	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuLibraryLoadFromFile(library ? &made : NULL, fileName, jitOptions,
					    jitOptionsValues, numJitOptions, libraryOptions,
					    libraryOptionValues, numLibraryOptions);
	return loaded_library(&growth, result, made, library);
}

CUresult cuLibraryUnload(CUlibrary library)
{
	trace_call(__func__);
	cuda_bind();
	return unloaded(cuda.cuLibraryUnload(library));
}

/* The driver loads a library into a context when its module or a variable is first asked for there.
 */
struct first_use {
	struct driver_memory growth;
	bool is_first; /* in the current context, as far as is known */
};

static CUresult use_begins(struct first_use *use, CUlibrary library)
{
	*use = (struct first_use){.is_first = false};
	lazy_code_handed_out(library, LAZY_CODE_PER_CONTEXT);
	use->is_first = quota_attached() && lazy_code_is_awaited(library, NULL);
	return use->is_first ? begin(&use->growth) : CUDA_SUCCESS;
}

/* If the slice is above its limit now, the library stays loaded, and the next use is refused, too.
 */
static CUresult used(struct first_use *use, CUlibrary library, CUresult result)
{
	if (!use->is_first)
		return result;
	if (!driver_memory_end(&use->growth, result))
		return driver_memory_refuse(&use->growth);
	lazy_code_launched(library, NULL, result == CUDA_SUCCESS);
	if (result != CUDA_SUCCESS) /* it may be no library */
		lazy_code_taken_back(library);
	return result;
}

CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
	CUmodule made = NULL;
	struct first_use use;
	CUresult result;

	cuda_bind();
	result = TRACE_CALLED(use_begins(&use, library));
	if (result != CUDA_SUCCESS)
		return result;
	result = used(&use, library, cuda.cuLibraryGetModule(pMod ? &made : NULL, library));
	if (result == CUDA_SUCCESS)
		*pMod = made;
	return result;
}

/* -- variables --------------------------------------------------------------------------------- */

/* Where the driver stores what it reports of a variable: always both values, because a managed
 * variable is charged by them. If the application wants neither, the driver refuses the call. */
#define ADDRESS(variable) (dptr || bytes ? &(variable)->address : NULL)
#define BYTES(variable)   (dptr || bytes ? &(variable)->bytes : NULL)

typedef CUresult look_up_in_library(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
				    const char *name);

static CUresult look_up(struct variable *made, look_up_in_library *driver, CUdeviceptr *dptr,
			size_t *bytes, CUlibrary library, const char *name)
{
	struct first_use use;
	CUresult result = use_begins(&use, library);

	if (result != CUDA_SUCCESS)
		return result;
	result = used(&use, library, driver(ADDRESS(made), BYTES(made), library, name));
	return variables_hand_out(made, result, dptr, bytes);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	struct variable made = {0};

	trace_call(__func__);
	cuda_bind();
	return look_up(&made, cuda.cuLibraryGetGlobal, dptr, bytes, library, name);
}

CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	struct variable made = {.is_managed = true};

	trace_call(__func__);
	cuda_bind();
	return look_up(&made, cuda.cuLibraryGetManaged, dptr, bytes, library, name);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
	struct variable made = {0};
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	result = cuda.cuModuleGetGlobal_v2(ADDRESS(&made), BYTES(&made), hmod, name);
	return variables_hand_out(&made, result, dptr, bytes);
}

/* The address of a managed variable may not fit into the result of this version. So the driver is
 * asked for all of it. */
CUresult cuModuleGetGlobal(CUdeviceptr_v1 *dptr, unsigned int *bytes, CUmodule hmod,
			   const char *name)
{
	struct variable made = {0};
	CUdeviceptr_v1 address = 0;
	unsigned int size = 0;
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	result = cuda.cuModuleGetGlobal(dptr ? &address : NULL, bytes ? &size : NULL, hmod, name);
	if (result == CUDA_SUCCESS)
		result = cuda.cuModuleGetGlobal_v2(&made.address, &made.bytes, hmod, name);
	if (result == CUDA_SUCCESS)
		result = variables_admit(&made);
	if (result == CUDA_SUCCESS && dptr)
		*dptr = address;
	if (result == CUDA_SUCCESS && bytes)
		*bytes = size;
	return result;
}

/* -- limits of a context ----------------------------------------------------------------------- */

#define STACK_MOST ((size_t)512 << 10) /* bytes of local memory that a thread can have */

/* The driver takes memory for a larger stack at once, for every thread that the GPU can have. */
static uint64_t stack_bytes(size_t before, size_t after)
{
	CUdevice device;

	if (after <= before || after > STACK_MOST || cuda.cuCtxGetDevice(&device) != CUDA_SUCCESS)
		return 0; /* not larger; or too large, which the driver refuses */
	return (uint64_t)(after - before) * local_threads(device);
}

/* The driver takes this memory later, when the first module that needs it is loaded, and keeps it
 * until the context ends. */
static bool is_taken_later(CUlimit limit)
{
	return limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE;
}

/* How much memory has to be reserved before the limit is raised. */
static uint64_t bytes_of(CUlimit limit, size_t before, size_t after)
{
	if (limit == CU_LIMIT_STACK_SIZE)
		return stack_bytes(before, after);
	return is_taken_later(limit) && after > before ? after - before : 0;
}

/* The driver has accepted the limit. */
static void note_limit(const struct driver_memory *growth, CUlimit limit, size_t before,
		       size_t after)
{
	if (!growth->counted || !is_taken_later(limit))
		return;
	if (after > before)
		quota_driver_expect(growth->device, after - before);
	else
		quota_driver_return(growth->device,
				    quota_driver_expect_less(growth->device, before - after));
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	struct driver_memory growth;
	size_t before = value;
	uint64_t bytes;
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	cuda.cuCtxGetLimit(&before, limit);
	bytes = bytes_of(limit, before, value);
	result = driver_memory_begin(&growth, -1, bytes, bytes);
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuCtxSetLimit(limit, value);
	if (result == CUDA_SUCCESS)
		note_limit(&growth, limit, before, value);
	if (driver_memory_end(&growth, result)) {
		if (result == CUDA_SUCCESS && limit == CU_LIMIT_STACK_SIZE)
			local_of_stacks(value);
		return result;
	}
	cuda.cuCtxSetLimit(limit, before);
	if (is_taken_later(limit))
		quota_driver_expect_less(growth.device, bytes);
	return driver_memory_refuse(&growth);
}
