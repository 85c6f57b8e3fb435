/*
 * Modules: code images (image.h), their kernels and the memory of their variables.
 *
 * A module costs its process VGPU_SIM_MODULE_MIB on the GPU of its context, and the granules of its
 * variables. The module of a library (library.c) has no context, and has that cost on each GPU
 * where it is used. With VGPU_SIM_MODULE_LAZY, a module without variables has the cost at its first
 * use. All contexts on a GPU share a library's variables.
 *
 * Managed variables are in managed memory, which is in no process's figure. A library has them once
 * for all GPUs. They are taken on the GPU where it is used first.
 *
 * No instruction is run. A kernel named spin_ns takes as many nanoseconds as its first parameter, a
 * u64; a kernel named collective is a collective (backlog.c); other kernels take no time. No kernel
 * changes memory. The contexts lock guards modules, and a module ends with its context. As on the
 * real driver, a function's handle is trusted until its module is unloaded.
 */
#include "image.h"
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	CAPABILITY = SIM_COMPUTE_MAJOR * 10 + SIM_COMPUTE_MINOR,
};

struct CUmod_st {
	CUmodule next;                         /* in its context's list */
	bool taken[SIM_GPUS_MAX];              /* changes under the lock */
	struct space *variables[SIM_GPUS_MAX]; /* NULL: not taken, or there are none */
	struct space *managed;                 /* managed variables; likewise */
	unsigned managed_gpu;
	struct machine_holding managed_holding;
	unsigned char *initial;         /* values of all other variables; NULL: zeroes */
	unsigned char *managed_initial; /* of managed variables; likewise */
	struct image image;
	struct CUfunc_st *functions; /* as many as the image's kernels, in their order */
};

static uint64_t granules_round(uint64_t bytes)
{
	const uint64_t rest = GRANULE_BYTES - 1;

	return (bytes + rest) & ~rest;
}

static struct machine_holding module_holding(const struct CUmod_st *module)
{
	uint64_t variable_bytes = granules_round(module->image.variable_bytes);

	return (struct machine_holding){.memory_bytes =
						config_get()->module_bytes + variable_bytes};
}

static CUdevice device_of(unsigned gpu)
{
	unsigned other;

	for (CUdevice device = 0; device_gpu(device, &other); device++) {
		if (other == gpu)
			return device;
	}
	return 0;
}

/* Addresses for variables, with their initial values. NULL: there is no memory. */
static struct space *space_make(uint64_t bytes, unsigned gpu, enum block_kind kind,
				const unsigned char *initial)
{
	struct space *space = calloc(1, sizeof *space);

	if (!space)
		return NULL;
	space->bytes = bytes;
	space->device = device_of(gpu);
	if (memory_space_open(space, kind)) {
		free(space);
		return NULL;
	}
	if (initial)
		memcpy((void *)(uintptr_t)space->address, initial, bytes);
	return space;
}

static void space_end(struct space *space)
{
	if (!space)
		return;
	memory_space_close(space);
	free(space);
}

static bool variables_open(CUmodule module, unsigned gpu)
{
	if (!module->image.variable_bytes)
		return true;
	module->variables[gpu] =
		space_make(module->image.variable_bytes, gpu, BLOCK_VARIABLES, module->initial);
	return module->variables[gpu] != NULL;
}

static bool managed_open(CUmodule module, unsigned gpu)
{
	uint64_t bytes = granules_round(module->image.managed_bytes), taken;

	if (!bytes || module->managed)
		return true;
	module->managed = space_make(module->image.managed_bytes, gpu, BLOCK_VARIABLES_MANAGED,
				     module->managed_initial);
	if (!module->managed)
		return false;
	taken = machine_take_managed(gpu, bytes);
	module->managed_gpu = gpu;
	module->managed_holding =
		(struct machine_holding){.managed_bytes = taken, .away_bytes = bytes - taken};
	return true;
}

static void managed_close(CUmodule module)
{
	if (!module->managed)
		return;
	space_end(module->managed);
	machine_give(module->managed_gpu, &module->managed_holding);
}

CUresult module_take(CUmodule module, unsigned gpu)
{
	struct machine_holding holding = module_holding(module);

	if (module->taken[gpu])
		return CUDA_SUCCESS;
	if (machine_take(gpu, &holding))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!managed_open(module, gpu) || !variables_open(module, gpu)) {
		machine_give(gpu, &holding);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	__atomic_store_n(&module->taken[gpu], true, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

CUresult module_load(CUmodule module, unsigned gpu)
{
	return config_get()->module_lazy && !module->image.variable_bytes &&
			       !module->image.managed_bytes
		       ? CUDA_SUCCESS
		       : module_take(module, gpu);
}

bool function_is_loaded(CUfunction function, unsigned gpu)
{
	return __atomic_load_n(&function->module->taken[gpu], __ATOMIC_RELAXED);
}

CUresult function_load(CUfunction function, unsigned gpu)
{
	CUresult result;

	if (!function || function->kind != OBJECT_FUNCTION)
		return CUDA_ERROR_INVALID_HANDLE;
	if (function_is_loaded(function, gpu))
		return CUDA_SUCCESS;
	contexts_lock();
	result = module_take(function->module, gpu);
	contexts_unlock();
	return result;
}

void module_free(CUmodule module)
{
	struct machine_holding holding = module_holding(module);

	for (unsigned gpu = 0; gpu < SIM_GPUS_MAX; gpu++) {
		space_end(module->variables[gpu]);
		if (module->taken[gpu])
			machine_give(gpu, &holding);
	}
	managed_close(module);
	image_free(&module->image);
	free(module->functions);
	free(module->initial);
	free(module->managed_initial);
	free(module);
}

/* The application may free the image after it is loaded, so the values are copied. */
static bool initial_copy(CUmodule module)
{
	const struct image *image = &module->image;
	unsigned char **initial;

	for (unsigned i = 0; i < image->variable_count; i++) {
		const struct image_variable *variable = &image->variables[i];

		if (!variable->initial.count)
			continue;
		initial = variable->managed ? &module->managed_initial : &module->initial;
		if (!*initial)
			*initial = calloc(1, variable->managed ? image->managed_bytes
							       : image->variable_bytes);
		if (!*initial)
			return false;
		memcpy(*initial + variable->offset, variable->initial.data,
		       variable->initial.count);
	}
	return true;
}

static bool functions_make(CUmodule module)
{
	unsigned count = module->image.kernel_count;

	module->functions = calloc(count ? count : 1, sizeof *module->functions);
	if (!module->functions)
		return false;
	for (unsigned i = 0; i < count; i++) {
		module->functions[i] = (struct CUfunc_st){
			.kind = OBJECT_FUNCTION,
			.kernel = &module->image.kernels[i],
			.module = module,
			.spins = !strcmp(module->image.kernels[i].name, "spin_ns"),
			.collects = !strcmp(module->image.kernels[i].name, "collective"),
			.carveout_pct = -1,
		};
	}
	return true;
}

CUresult module_make(const void *image, size_t bytes, CUmodule *ret_module)
{
	CUmodule module = calloc(1, sizeof *module);

	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = bytes == IMAGE_UNSIZED
				  ? image_read_unsized(image, CAPABILITY, &module->image)
				  : image_read(image, bytes, CAPABILITY, &module->image);
	if (!result && (!functions_make(module) || !initial_copy(module)))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result) {
		module_free(module);
		return result;
	}
	*ret_module = module;
	return CUDA_SUCCESS;
}

/* A module that is loaded in a green context belongs to the primary context. */
static CUresult load_into(CUcontext context, CUmodule *ret_module, const void *image, size_t bytes)
{
	CUmodule module;
	CUresult result = module_make(image, bytes, &module);

	if (result)
		return result;
	context = context_owner(context);
	contexts_lock();
	result = context->alive ? module_load(module, context->gpu)
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
	if (!ret_module || !image)
		return CUDA_ERROR_INVALID_VALUE;
	return leave(function, load_into(context, ret_module, image, IMAGE_UNSIZED));
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

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
	return load(__func__, module, fatCubin);
}

CUresult module_read(const char *path, char **ret_image, size_t *ret_bytes)
{
	FILE *file = fopen(path, "re");
	size_t bytes = 0, room = 0, got = 1;
	char *image = NULL;

	if (!file)
		return CUDA_ERROR_FILE_NOT_FOUND;
	while (got) {
		if (bytes == room) {
			room = room ? 2 * room : 1 << 16;
			char *bigger = realloc(image, room);

			if (!bigger)
				break;
			image = bigger;
		}
		got = fread(image + bytes, 1, room - bytes, file);
		bytes += got;
	}
	fclose(file);
	if (!got && bytes) {
		*ret_image = image;
		*ret_bytes = bytes;
		return CUDA_SUCCESS;
	}
	free(image);
	return got ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE;
}

CUresult cuModuleLoad(CUmodule *module, const char *fname)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);
	size_t bytes;
	char *image;

	if (result)
		return result;
	if (!module || !fname)
		return CUDA_ERROR_INVALID_VALUE;
	result = module_read(fname, &image, &bytes);
	if (result)
		return result;
	result = load_into(context, module, image, bytes);
	free(image);
	return leave(__func__, result);
}

void modules_close(CUcontext context)
{
	while (context->modules) {
		CUmodule module = context->modules;

		context->modules = module->next;
		module_free(module);
	}
}

/* The place of the module in the context's list, or NULL. */
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
	return leave(__func__, CUDA_SUCCESS);
}

CUfunction module_function(CUmodule module, const char *name)
{
	for (unsigned i = 0; i < module->image.kernel_count; i++) {
		if (!strcmp(module->image.kernels[i].name, name))
			return &module->functions[i];
	}
	return NULL;
}

unsigned module_functions(CUmodule module, CUfunction *functions, unsigned most)
{
	for (unsigned i = 0; i < module->image.kernel_count && i < most; i++)
		functions[i] = &module->functions[i];
	return module->image.kernel_count;
}

static const struct image_variable *variable_find(CUmodule module, const char *name)
{
	for (unsigned i = 0; i < module->image.variable_count; i++) {
		if (!strcmp(module->image.variables[i].name, name))
			return &module->image.variables[i];
	}
	return NULL;
}

static CUresult variable_tell(const struct image_variable *variable, const struct space *space,
			      CUdeviceptr *ret_address, size_t *ret_bytes)
{
	if (!variable || !space)
		return CUDA_ERROR_NOT_FOUND;
	if (ret_address)
		*ret_address = space->address + variable->offset;
	if (ret_bytes)
		*ret_bytes = variable->bytes;
	return CUDA_SUCCESS;
}

CUresult module_variable(CUmodule module, unsigned gpu, const char *name, CUdeviceptr *ret_address,
			 size_t *ret_bytes)
{
	const struct image_variable *variable = variable_find(module, name);
	bool managed = variable && variable->managed;

	return variable_tell(variable, managed ? module->managed : module->variables[gpu],
			     ret_address, ret_bytes);
}

CUresult module_managed(CUmodule module, const char *name, CUdeviceptr *ret_address,
			size_t *ret_bytes)
{
	const struct image_variable *variable = variable_find(module, name);
	bool managed = variable && variable->managed;

	return variable_tell(managed ? variable : NULL, module->managed, ret_address, ret_bytes);
}

unsigned module_binary_version(CUmodule module)
{
	return module->image.binary_version ? module->image.binary_version : CAPABILITY;
}

unsigned module_ptx_version(CUmodule module)
{
	return module->image.ptx_version ? module->image.ptx_version
					 : module_binary_version(module);
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

static CUresult variable_get(const char *function, CUmodule module, const char *name,
			     CUdeviceptr *ret_address, size_t *ret_bytes)
{
	CUcontext context;
	CUresult result = enter_context(function, &context);

	if (result)
		return result;
	if ((!ret_address && !ret_bytes) || !name)
		return CUDA_ERROR_INVALID_VALUE;
	contexts_lock();
	if (module_find_locked(context, module) || handle_is(module, HANDLE_MODULE))
		result = module_take(module, context->gpu);
	else
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result)
		result = module_variable(module, context->gpu, name, ret_address, ret_bytes);
	contexts_unlock();
	return leave(function, result);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
	return variable_get(__func__, hmod, name, dptr, bytes);
}

CUresult cuModuleGetGlobal(CUdeviceptr_v1 *dptr, unsigned int *bytes, CUmodule hmod,
			   const char *name)
{
	CUdeviceptr address;
	size_t length;
	CUresult result = variable_get(__func__, hmod, name, &address, &length);

	if (!result && dptr)
		*dptr = (CUdeviceptr_v1)address;
	if (!result && bytes)
		*bytes = (unsigned)length;
	return result;
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
	return leave(__func__, result);
}

CUresult cuFuncLoad(CUfunction function)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	return result ? result : leave(__func__, function_load(function, context->gpu));
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	contexts_lock();
	if (module_find_locked(context, mod) || handle_is(mod, HANDLE_MODULE))
		*count = module_functions(mod, NULL, 0);
	else
		result = CUDA_ERROR_INVALID_HANDLE;
	contexts_unlock();
	return result;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!functions)
		return CUDA_ERROR_INVALID_VALUE;
	contexts_lock();
	if (module_find_locked(context, mod) || handle_is(mod, HANDLE_MODULE))
		module_functions(mod, functions, numFunctions);
	else
		result = CUDA_ERROR_INVALID_HANDLE;
	contexts_unlock();
	return leave(__func__, result);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	const char *wish = getenv("CUDA_MODULE_LOADING");
	CUresult result = enter(__func__);

	if (result)
		return result;
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = wish && !strcmp(wish, "EAGER") ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
	return CUDA_SUCCESS;
}
