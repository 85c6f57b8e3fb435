/* The table of the driver's functions: filled once, when the driver is found (library.h). */
#include "cuda.h"

#include "library.h"

/* Replacements for functions that the driver does not have. */
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

static const char *const names[] = {
#define CU_HOOK(name, class, parameters, arguments) #name,
#define CU_CALL(name, class, parameters)            #name,
#include "cuda.def"
};

#define COUNT (sizeof(names) / sizeof(names[0]))

_Static_assert(COUNT * sizeof(void *) == sizeof(cuda) && COUNT <= LIBRARY_FUNCTIONS_MAX, "table");

static struct library driver = {
	.soname = CUDA_SONAME,
	.rarities = {"cuGetErrorString", "cuProfilerStop", "cuTexRefGetFlags"},
	.names = names,
	.table = (void **)(void *)&cuda,
	.count = COUNT,
};

bool cuda_bind(void)
{
	return library_bind(&driver);
}

bool cuda_bind_from(void *handle)
{
	return library_bind_from(&driver, handle);
}

void cuda_forked(void)
{
	library_forked(&driver);
}

void *cuda_driver_symbol(const char *name)
{
	return library_symbol(&driver, name);
}
