/*
 * Libraries: a module without a context, and its kernels, whose handles can be used as functions.
 *
 * A library takes a module's memory (module.c) on each GPU where it is loaded: on the current
 * context's GPU at once, and on another GPU when one of its kernels or variables is first used in a
 * context there. It gives all of it back when it is unloaded. Under the contexts lock.
 */
#include "sim.h"

#include <stdlib.h>

struct CUlib_st {
	CUmodule module;
};

static CUresult load(CUlibrary *ret_library, const void *image, size_t bytes)
{
	CUcontext context = context_current();
	CUlibrary library = calloc(1, sizeof *library);
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (library)
		result = module_make(image, bytes, &library->module);
	if (result) {
		free(library);
		return result;
	}
	contexts_lock();
	if (context && context->alive)
		result = module_load(library->module, context->gpu);
	if (!result && !handle_add(library, HANDLE_LIBRARY))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!result && !handle_add(library->module, HANDLE_MODULE)) {
		handle_remove(library);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	contexts_unlock();
	if (result) {
		module_free(library->module);
		free(library);
		return result;
	}
	*ret_library = library;
	return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
			   void **jitOptionsValues, unsigned int numJitOptions,
			   CUlibraryOption *libraryOptions, void **libraryOptionValues,
			   unsigned int numLibraryOptions)
{
	CUresult result = enter(__func__);

	(void)jitOptions;
	(void)jitOptionsValues;
	(void)numJitOptions;
	(void)libraryOptions;
	(void)libraryOptionValues;
	(void)numLibraryOptions;
	if (result)
		return result;
	if (!library || !code)
		return CUDA_ERROR_INVALID_VALUE;
	return leave(__func__, load(library, code, IMAGE_UNSIZED));
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
			       void **jitOptionsValues, unsigned int numJitOptions,
			       CUlibraryOption *libraryOptions, void **libraryOptionValues,
			       unsigned int numLibraryOptions)
{
	CUresult result = enter(__func__);
	size_t bytes;
	char *image;

	(void)jitOptions;
	(void)jitOptionsValues;
	(void)numJitOptions;
	(void)libraryOptions;
	(void)libraryOptionValues;
	(void)numLibraryOptions;
	if (result)
		return result;
	if (!library || !fileName)
		return CUDA_ERROR_INVALID_VALUE;
	result = module_read(fileName, &image, &bytes);
	if (result)
		return result;
	result = load(library, image, bytes);
	free(image);
	return leave(__func__, result);
}

CUresult cuLibraryUnload(CUlibrary library)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	contexts_lock();
	bool found = handle_is(library, HANDLE_LIBRARY);
	if (found) {
		handle_remove(library);
		handle_remove(library->module);
	}
	contexts_unlock();
	if (!found)
		return CUDA_ERROR_INVALID_HANDLE;
	module_free(library->module);
	free(library);
	return leave(__func__, CUDA_SUCCESS);
}

/* After success, the caller holds the contexts lock. */
static CUresult enter_library_locked(const char *function, CUlibrary library, const void *out)
{
	CUresult result = enter(function);

	if (result)
		return result;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	contexts_lock();
	if (handle_is(library, HANDLE_LIBRARY))
		return CUDA_SUCCESS;
	contexts_unlock();
	return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
	CUresult result = enter_library_locked(__func__, library, name ? pKernel : NULL);
	CUfunction function;

	if (result)
		return result;
	function = module_function(library->module, name);
	contexts_unlock();
	if (!function)
		return CUDA_ERROR_NOT_FOUND;
	*pKernel = (CUkernel)(void *)function;
	return leave(__func__, CUDA_SUCCESS);
}

CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!pMod)
		return CUDA_ERROR_INVALID_VALUE;
	contexts_lock();
	if (handle_is(library, HANDLE_LIBRARY))
		result = module_take(library->module, context->gpu);
	else
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result)
		*pMod = library->module;
	contexts_unlock();
	return leave(__func__, result);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if ((!dptr && !bytes) || !name)
		return CUDA_ERROR_INVALID_VALUE;
	contexts_lock();
	if (handle_is(library, HANDLE_LIBRARY))
		result = module_take(library->module, context->gpu);
	else
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result)
		result = module_variable(library->module, context->gpu, name, dptr, bytes);
	contexts_unlock();
	return leave(__func__, result);
}

/* By its documentation, the function needs no current context. The variables exist once the library
 * is loaded into a context. */
CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	CUresult result = enter_library_locked(__func__, library, dptr ? (void *)dptr : bytes);
	CUcontext context = context_current();

	if (result)
		return result;
	if (context && context->alive)
		result = module_take(library->module, context->gpu);
	if (!result)
		result = name ? module_managed(library->module, name, dptr, bytes)
			      : CUDA_ERROR_INVALID_VALUE;
	contexts_unlock();
	return leave(__func__, result);
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib)
{
	CUresult result = enter_library_locked(__func__, lib, count);

	if (result)
		return result;
	*count = module_functions(lib->module, NULL, 0);
	contexts_unlock();
	return CUDA_SUCCESS;
}

/* The handle of a kernel is that of its function. */
CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
	CUresult result = enter_library_locked(__func__, lib, kernels);

	if (result)
		return result;
	module_functions(lib->module, (CUfunction *)(void *)kernels, numKernels);
	contexts_unlock();
	return leave(__func__, CUDA_SUCCESS);
}

CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
	CUfunction function = (CUfunction)(void *)kernel;
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!pFunc)
		return CUDA_ERROR_INVALID_VALUE;
	result = function_load(function, context->gpu);
	if (!result)
		*pFunc = function;
	return leave(__func__, result);
}
