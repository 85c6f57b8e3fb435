/* The table of the driver's functions: filled once, when the driver is found (library.h). */
#include "cuda.h"

#include "library.h"

/* What stands in for a function that is not there. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define CU_HOOK(name, class, parameters, arguments) \
	static CUresult no_##name parameters        \
	{                                           \
		return CUDA_ERROR_NOT_SUPPORTED;    \
	}
#define CU_CALL(name, class, parameters) CU_HOOK(name, class, parameters, )
#include "cuda.def"
#pragma GCC diagnostic pop

struct cuda_functions cuda = {
#define CU_HOOK(name, class, parameters, arguments) .name = no_##name,
#define CU_CALL(name, class, parameters)            .name = no_##name,
#include "cuda.def"
};

static void fill(void);

static struct library driver = {
	.soname = CUDA_SONAME,
	.rarities = {"cuGetErrorString", "cuProfilerStop", "cuTexRefGetFlags"},
	.fill = fill,
};

static void fill(void)
{
#define CU_HOOK(name, class, parameters, arguments) library_take(&driver, #name, &cuda.name);
#define CU_CALL(name, class, parameters)            library_take(&driver, #name, &cuda.name);
#include "cuda.def"
}

bool cuda_bind(void)
{
	return library_bind(&driver);
}

bool cuda_bind_from(void *handle)
{
	return library_bind_from(&driver, handle);
}

void cuda_forget(void)
{
	lock_init(&driver.binding);
}

void *cuda_driver_symbol(const char *name)
{
	return library_symbol(&driver, name);
}
