/* See own_fixture.h. */
#include "own_fixture.h"

#include <unistd.h>

const char code[] = ".version 8.0\n.target sm_90\n.visible .entry nothing() { ret; }\n";

CUcontext start(const char *limit)
{
	return start_with_code(limit, "20");
}

CUcontext start_with_code(const char *limit, const char *module_mib)
{
	CUcontext context;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	env_set("VGPU_SIM_MODULE_MIB", module_mib);
	scene_write("code.ptx", code);
	context = cuda_start(0);
	give(take(1)); /* settles the context */
	return context;
}

void rest(void)
{
	size_t available, total;

	sleep_ms(25);
	CHECK_OK(cuMemGetInfo_v2(&available, &total));
}

void assert_books(uint64_t module, uint64_t data)
{
	struct vgpu_hami_usage usage = ledger_own(0);

	CHECK_EQUAL(usage.context, CONTEXT);
	CHECK_EQUAL(usage.module, module);
	CHECK_EQUAL(usage.data, data);
	CHECK_EQUAL(usage.offset, HIDDEN);
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT + module + data);
}

void assert_stack(size_t bytes)
{
	size_t now = 0;

	CHECK_OK(cuCtxGetLimit(&now, CU_LIMIT_STACK_SIZE));
	CHECK_EQUAL(now, bytes);
}

CUdeviceptr leave(uint64_t bytes)
{
	size_t available, total;

	CHECK_OK(cuMemGetInfo_v2(&available, &total));
	return take((available - bytes) / GRANULE * GRANULE);
}

CUresult load(unsigned loader, union loaded *ret_loaded)
{
	const char *file = scene_path("code.ptx");

	switch (loader % LOADERS) {
	case 0:
		return cuModuleLoad(&ret_loaded->module, file);
	case 1:
		return cuModuleLoadData(&ret_loaded->module, code);
	case 2:
		return cuModuleLoadDataEx(&ret_loaded->module, code, 0, NULL, NULL);
	case 3:
		return cuModuleLoadFatBinary(&ret_loaded->module, code);
	case 4:
		return cuLibraryLoadData(&ret_loaded->lib, code, NULL, NULL, 0, NULL, NULL, 0);
	default:
		return cuLibraryLoadFromFile(&ret_loaded->lib, file, NULL, NULL, 0, NULL, NULL, 0);
	}
}

CUresult try_unload(unsigned loader, union loaded loaded)
{
	return loader % LOADERS < 4 ? cuModuleUnload(loaded.module) : cuLibraryUnload(loaded.lib);
}

void unload(unsigned loader, union loaded loaded)
{
	CHECK_OK(try_unload(loader, loaded));
}
