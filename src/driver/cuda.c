/*
 * How the driver is found: by its DT_SONAME among the loaded objects, which is the same for the
 * distribution's copy, the container toolkit's and the compatibility package's.
 *
 * The table is written once, by one thread under `binding`; readers see it after `bound` (release
 * here, acquire in is_bound). A process that dies in between takes the table with it.
 */
#include "cuda.h"

#include <dlfcn.h>

#include "libc.h"
#include "lock.h"
#include "objects.h"

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

static struct lock binding = LOCK_INIT;
static bool bound;
static struct object driver; /* all zero when bound from a handle of another namespace */
static void *driver_handle;

static bool is_bound(void)
{
	return __atomic_load_n(&bound, __ATOMIC_ACQUIRE);
}

static void *symbol_of_driver(const char *name)
{
	if (driver.dynamic)
		return object_symbol(&driver, name);
	return libc_functions()->dlsym(driver_handle, name);
}

void *cuda_driver_symbol(const char *name)
{
	return is_bound() ? symbol_of_driver(name) : NULL;
}

/*
 * Whether the driver is in the global scope: as a library of the program, or opened RTLD_GLOBAL.
 * Only then can a wrapper between us and it find it by RTLD_NEXT; otherwise it had no part in this
 * before us, and has none now. Told by names that nobody has a reason to wrap.
 */
static bool driver_is_global(void)
{
	static const char *const names[] = {"cuGetErrorString", "cuProfilerStop",
					    "cuTexRefGetFlags"};
	const struct libc_functions *libc = libc_functions();

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && driver.dynamic; i++) {
		void *found = libc->dlsym(RTLD_NEXT, names[i]);

		if (found && found == object_symbol(&driver, names[i]))
			return true;
	}
	return false;
}

/* The next definition behind us, a wrapper's or the driver's. */
static void *next_of(const char *name, bool global)
{
	void *own = symbol_of_driver(name);
	void *next = own && global ? libc_functions()->dlsym(RTLD_NEXT, name) : NULL;

	return next ? next : own;
}

static void fill_one(const char *name, void *slot, bool global)
{
	void *next = next_of(name, global);

	if (next)
		*(void **)slot = next;
}

static void fill(void)
{
	bool global = driver_is_global();

#define CU_HOOK(name, class, parameters, arguments) fill_one(#name, &cuda.name, global);
#define CU_CALL(name, class, parameters)            fill_one(#name, &cuda.name, global);
#include "cuda.def"
	libc_functions()->dlerror(); /* what our own lookups left is not the application's */
	__atomic_store_n(&bound, true, __ATOMIC_RELEASE);
}

bool cuda_bind(void)
{
	const struct libc_functions *libc = libc_functions();

	if (is_bound())
		return true;
	if (!libc->dlsym || !libc->dlopen)
		return false;
	lock_acquire(&binding);
	if (!is_bound() && objects_named(CUDA_SONAME, &driver)) {
		driver_handle = libc->dlopen(CUDA_SONAME, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
		fill();
	}
	lock_release(&binding);
	return is_bound();
}

bool cuda_bind_from(void *handle)
{
	if (cuda_bind())
		return true;
	lock_acquire(&binding);
	if (!is_bound() && libc_functions()->dlsym(handle, "cuInit")) {
		driver_handle = handle;
		fill();
	}
	lock_release(&binding);
	return is_bound();
}
