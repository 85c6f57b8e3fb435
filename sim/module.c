/*
 * Modules: PTX text, of which only the names of the entries matter.
 *
 * A kernel named spin_ns lasts as many nanoseconds as its first parameter, a u64, says; any other
 * takes no time. Modules are guarded by the contexts lock, and end with their context. Like the
 * real driver we trust a function's handle until its module is unloaded, not longer.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

struct CUmod_st {
	CUcontext context;
	CUmodule next;
	unsigned count;
	struct CUfunc_st *functions;
};

static void module_free(CUmodule module)
{
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

static CUresult load(const char *function, CUmodule *ret_module, const void *image)
{
	CUcontext context;
	CUresult result = enter_context(function, &context);

	if (result)
		return result;
	if (!ret_module || !image)
		return CUDA_ERROR_INVALID_VALUE;
	CUmodule module = calloc(1, sizeof *module);
	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = parse(module, image);
	contexts_lock();
	if (!result && !context->alive)
		result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (!result) {
		module->context = context;
		module->next = context->modules;
		context->modules = module;
		*ret_module = module;
	}
	contexts_unlock();
	if (result)
		module_free(module);
	return result;
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

static CUresult function_find_locked(CUcontext context, CUmodule module, const char *name,
				     CUfunction *ret_function)
{
	if (!module_find_locked(context, module))
		return CUDA_ERROR_INVALID_HANDLE;
	for (unsigned i = 0; i < module->count; i++) {
		if (!strcmp(module->functions[i].name, name)) {
			*ret_function = &module->functions[i];
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_NOT_FOUND;
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
