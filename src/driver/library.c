/*
 * Written by one thread under `binding`, and read after `bound`. Two libraries by the same soname
 * cannot be in one namespace, so the first that is found is the one.
 *
 * A wrapper behind us finds the library by RTLD_NEXT, in the global scope. If the library was
 * opened RTLD_LOCAL, the wrapper had no part in calls to it before us, would find nothing below
 * itself, and is left out. That is told by the rarities: the loader finds the library's own.
 */
#include "library.h"

#include <dlfcn.h>

#include "libc.h"

static bool is_bound(const struct library *library)
{
	return __atomic_load_n(&library->bound, __ATOMIC_ACQUIRE); /* pairs with finish */
}

static void *own_symbol(const struct library *library, const char *name)
{
	if (library->object.dynamic)
		return object_symbol(&library->object, name);
	return libc_functions()->dlsym(library->handle, name);
}

void *library_symbol(const struct library *library, const char *name)
{
	return is_bound(library) ? own_symbol(library, name) : NULL;
}

static bool is_global(const struct library *library)
{
	for (size_t i = 0; i < 3 && library->object.dynamic; i++) {
		void *found = libc_functions()->dlsym(RTLD_NEXT, library->rarities[i]);

		if (found && found == own_symbol(library, library->rarities[i]))
			return true;
	}
	return false;
}

void library_take(const struct library *library, const char *name, void *slot)
{
	void *own = own_symbol(library, name);
	void *next = own && library->global ? libc_functions()->dlsym(RTLD_NEXT, name) : NULL;

	if (own)
		*(void **)slot = next ? next : own;
}

/* Under `binding`. */
static void finish(struct library *library)
{
	library->global = is_global(library);
	library->fill();
	libc_functions()->dlerror(); /* what our own lookups left is not the application's */
	__atomic_store_n(&library->bound, true, __ATOMIC_RELEASE);
}

bool library_bind(struct library *library)
{
	const struct libc_functions *libc = libc_functions();

	if (is_bound(library))
		return true;
	if (!libc->dlinfo) /* nor, then, anything else */
		return false;
	lock_acquire(&library->binding);
	if (!is_bound(library) && objects_named(library->soname, &library->object)) {
		library->handle =
			libc->dlopen(library->soname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
		finish(library);
	}
	lock_release(&library->binding);
	return is_bound(library);
}

bool library_bind_from(struct library *library, void *handle)
{
	if (library_bind(library))
		return true;
	lock_acquire(&library->binding);
	if (!is_bound(library) && libc_functions()->dlsym(handle, library->rarities[0])) {
		library->handle = handle;
		finish(library);
	}
	lock_release(&library->binding);
	return is_bound(library);
}
