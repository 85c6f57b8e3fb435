/*
 * Modules: PTX text, of which only the names of the entries matter.
 *
 * A module costs its process what VGPU_SIM_MODULE_MIB says of the GPU of its context; a library's
 * (library.c), which has no context, of each GPU that it is used on.
 *
 * A kernel named spin_ns lasts as many nanoseconds as its first parameter, a u64, says; any other
 * takes no time. Modules are guarded by the contexts lock, and end with their context. Like the
 * real driver we trust a function's handle until its module is unloaded, not longer.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUmod_st {
	CUmodule next;            /* of its context's */
	bool taken[SIM_GPUS_MAX]; /* changes under the lock */
	unsigned count;
	struct CUfunc_st *functions;
};

static struct state_holding module_holding(void)
{
	return (struct state_holding){.memory_bytes = config_get()->module_bytes};
}

CUresult module_take(CUmodule module, unsigned gpu)
{
	struct state_holding holding = module_holding();

	if (module->taken[gpu])
		return CUDA_SUCCESS;
	if (state_take(gpu, &holding))
		return CUDA_ERROR_OUT_OF_MEMORY;
	__atomic_store_n(&module->taken[gpu], true, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

CUresult function_load(CUfunction function, unsigned gpu)
{
	CUresult result;

	if (!function || function->kind != OBJECT_FUNCTION)
		return CUDA_ERROR_INVALID_HANDLE;
	if (__atomic_load_n(&function->module->taken[gpu], __ATOMIC_RELAXED))
		return CUDA_SUCCESS;
	contexts_lock();
	result = module_take(function->module, gpu);
	contexts_unlock();
	return result;
}

void module_free(CUmodule module)
{
	struct state_holding holding = module_holding();

	for (unsigned gpu = 0; gpu < SIM_GPUS_MAX; gpu++) {
		if (module->taken[gpu])
			state_give(gpu, &holding);
	}
	for (unsigned i = 0; i < module->count; i++)
		free(module->functions[i].name);
	free(module->functions);
	free(module);
}

static bool function_add(CUmodule module, const char *name, size_t length)
{
	struct CUfunc_st *functions =
		realloc(module->functions, (module->count + 1) * sizeof *functions);

	if (!functions)
		return false;
	module->functions = functions;
	struct CUfunc_st *function = &functions[module->count];
	function->name = strndup(name, length);
	if (!function->name)
		return false;
	function->kind = OBJECT_FUNCTION;
	function->module = module;
	memset(function->block, 0, sizeof function->block);
	function->parameter = 0;
	function->spins = !strcmp(function->name, "spin_ns");
	module->count++;
	return true;
}

/* PTX begins with comments and then .version; "spaces" here are all that may stand between words.
 */
static const char *skip(const char *text)
{
	for (;;) {
		text += strspn(text, " \t\r\n");
		const char *end = NULL;
		if (!strncmp(text, "//", 2))
			end = strchr(text, '\n');
		else if (!strncmp(text, "/*", 2))
			end = strstr(text + 2, "*/");
		else
			return text;
		if (!end)
			return text + strlen(text);
		text = end + (*end == '\n' ? 1 : 2);
	}
}

static CUresult parse(CUmodule module, const char *ptx)
{
	static const char entry[] = ".entry";
	static const char name_characters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$";

	ptx = skip(ptx);
	if (strncmp(ptx, ".version", 8))
		return CUDA_ERROR_INVALID_IMAGE;
	while (*ptx) {
		if (strncmp(ptx, entry, sizeof entry - 1) ||
		    strchr(name_characters, ptx[sizeof entry - 1])) {
			ptx = skip(ptx + 1);
			continue;
		}
		ptx = skip(ptx + sizeof entry - 1);
		size_t length = strspn(ptx, name_characters);
		if (!length)
			return CUDA_ERROR_INVALID_PTX;
		if (!function_add(module, ptx, length))
			return CUDA_ERROR_OUT_OF_MEMORY;
		ptx = skip(ptx + length);
	}
	return CUDA_SUCCESS;
}

CUresult module_make(const char *image, CUmodule *ret_module)
{
	CUmodule module = calloc(1, sizeof *module);

	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = parse(module, image);
	if (result) {
		module_free(module);
		return result;
	}
	*ret_module = module;
	return CUDA_SUCCESS;
}

/* The modules of a green context are the primary one's. */
static CUresult load_into(CUcontext context, CUmodule *ret_module, const char *image)
{
	CUmodule module;
	CUresult result = module_make(image, &module);

	if (result)
		return result;
	context = context_owner(context);
	contexts_lock();
	result = context->alive ? module_take(module, context->gpu)
				: CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (!result) {
		module->next = context->modules;
		context->modules = module;
		*ret_module = module;
	}
	contexts_unlock();
	if (result)
		module_free(module);
	return result;
}

static CUresult load(const char *function, CUmodule *ret_module, const void *image)
{
	CUcontext context;
	CUresult result = enter_context(function, &context);

	if (result)
		return result;
	return ret_module && image ? load_into(context, ret_module, image)
				   : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	return load(__func__, module, image);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
			    CUjit_option *options, void **optionValues)
{
	(void)numOptions;
	(void)options;
	(void)optionValues;
	return load(__func__, module, image);
}

/* Any other form of code is refused by the parser, as one for another GPU would be. */
CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
	return load(__func__, module, fatCubin);
}

CUresult module_read(const char *path, char **ret_text)
{
	FILE *file = fopen(path, "re");
	size_t size = 0;

	if (!file)
		return CUDA_ERROR_FILE_NOT_FOUND;
	*ret_text = NULL;
	ssize_t length = getdelim(ret_text, &size, 0, file);
	fclose(file);
	if (length > 0)
		return CUDA_SUCCESS;
	free(*ret_text);
	return CUDA_ERROR_INVALID_IMAGE;
}

CUresult cuModuleLoad(CUmodule *module, const char *fname)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);
	char *text;

	if (result)
		return result;
	if (!module || !fname)
		return CUDA_ERROR_INVALID_VALUE;
	result = module_read(fname, &text);
	if (result)
		return result;
	result = load_into(context, module, text);
	free(text);
	return result;
}

void modules_close(CUcontext context)
{
	while (context->modules) {
		CUmodule module = context->modules;

		context->modules = module->next;
		module_free(module);
	}
}

/* Where the current context's list has the module; NULL if it has not. */
static CUmodule *module_find_locked(CUcontext context, CUmodule module)
{
	context = context_owner(context);
	for (CUmodule *at = &context->modules; *at; at = &(*at)->next) {
		if (*at == module)
			return at;
	}
	return NULL;
}

CUresult cuModuleUnload(CUmodule hmod)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	contexts_lock();
	CUmodule *at = module_find_locked(context, hmod);
	if (at)
		*at = hmod->next;
	contexts_unlock();
	if (!at)
		return CUDA_ERROR_INVALID_HANDLE;
	module_free(hmod);
	return CUDA_SUCCESS;
}

CUfunction module_function(CUmodule module, const char *name)
{
	for (unsigned i = 0; i < module->count; i++) {
		if (!strcmp(module->functions[i].name, name))
			return &module->functions[i];
	}
	return NULL;
}

static CUresult function_find_locked(CUcontext context, CUmodule module, const char *name,
				     CUfunction *ret_function)
{
	if (!module_find_locked(context, module) && !handle_is(module, HANDLE_MODULE))
		return CUDA_ERROR_INVALID_HANDLE;
	CUfunction function = module_function(module, name);
	if (!function)
		return CUDA_ERROR_NOT_FOUND;
	*ret_function = function;
	return CUDA_SUCCESS;
}

/* No variables are read from PTX, so there is none. */
CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if ((!dptr && !bytes) || !name)
		return CUDA_ERROR_INVALID_VALUE;
	contexts_lock();
	bool known = module_find_locked(context, hmod) || handle_is(hmod, HANDLE_MODULE);
	contexts_unlock();
	return known ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!hfunc || !name)
		return CUDA_ERROR_INVALID_VALUE;
	contexts_lock();
	result = function_find_locked(context, hmod, name, hfunc);
	contexts_unlock();
	return result;
}

CUresult cuFuncLoad(CUfunction function)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	return result ? result : function_load(function, context->gpu);
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
	const unsigned max_threads_per_block = 0, attributes_end = 16;
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!pi || attrib >= attributes_end)
		return CUDA_ERROR_INVALID_VALUE;
	if (!hfunc || hfunc->kind != OBJECT_FUNCTION)
		return CUDA_ERROR_INVALID_HANDLE;
	*pi = attrib == max_threads_per_block ? 1024 : 0;
	return CUDA_SUCCESS;
}
