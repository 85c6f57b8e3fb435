/*
 * Everything is looked up first, with no lock held. A thread inside dlopen holds the loader's lock
 * and may call this library (a constructor that calls dlsym does). So no lock of this library may
 * be held while the loader is called. Two threads that do it at once find the same, and the first
 * to publish wins.
 *
 * A wrapper that follows libvgpu.so in load order finds the driver's library by RTLD_NEXT, in the
 * global scope. If that library was opened RTLD_LOCAL, the wrapper never got calls to it and would
 * find nothing by RTLD_NEXT. So the wrapper is left out. The rarities distinguish the two cases:
 * RTLD_NEXT finds the library's own rarities only if it is in the global scope.
 */
#include "library.h"

#include <dlfcn.h>

#include "libc.h"

/* One copy of the library. */
struct copy {
	struct object object;
	void *handle;
};

static bool is_bound(const struct library *library)
{
	return __atomic_load_n(&library->bound, __ATOMIC_ACQUIRE); /* pairs with publish */
}

static void *own_symbol(const struct copy *copy, const char *name)
{
	if (copy->object.dynamic)
		return object_symbol(&copy->object, name);
	return libc_functions()->dlsym(copy->handle, name);
}

void *library_symbol(const struct library *library, const char *name)
{
	struct copy copy = {library->object, library->handle};

	return is_bound(library) ? own_symbol(&copy, name) : NULL;
}

static bool is_global(const struct library *library, const struct copy *copy)
{
	for (size_t i = 0; i < 3 && copy->object.dynamic; i++) {
		void *found = libc_functions()->dlsym(RTLD_NEXT, library->rarities[i]);

		if (found && found == own_symbol(copy, library->rarities[i]))
			return true;
	}
	return false;
}

static void publish(struct library *library, const struct copy *copy, void *const *found)
{
	lock_acquire(&library->publishing);
	if (!library->bound) {
		for (size_t i = 0; i < library->count; i++)
			if (found[i])
				library->table[i] = found[i];
		library->object = copy->object;
		library->handle = copy->handle;
		__atomic_store_n(&library->bound, true, __ATOMIC_RELEASE);
	}
	lock_release(&library->publishing);
}

/* Fills the table with the functions that this component's calls should reach: a wrapper's, or the
 * library's own. */
static void bind_copy(struct library *library, const struct copy *copy)
{
	void *found[LIBRARY_FUNCTIONS_MAX];
	bool global = is_global(library, copy);

	for (size_t i = 0; i < library->count; i++) {
		void *own = own_symbol(copy, library->names[i]), *next = NULL;

		if (own && global)
			next = libc_functions()->dlsym(RTLD_NEXT, library->names[i]);
		found[i] = next ? next : own;
	}
	libc_functions()->dlerror(); /* the application must not see the errors of these lookups */
	publish(library, copy, found);
}

bool library_bind(struct library *library)
{
	const struct libc_functions *libc = libc_functions();
	struct copy copy;

	if (is_bound(library))
		return true;
	if (!libc->dlsym || !objects_named(library->soname, &copy.object))
		return false;
	copy.handle = libc->dlopen(library->soname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
	bind_copy(library, &copy);
	return true;
}

bool library_bind_from(struct library *library, void *handle)
{
	struct copy copy = {.handle = handle};

	if (library_bind(library))
		return true;
	if (!libc_functions()->dlsym || !libc_functions()->dlsym(handle, library->rarities[0]))
		return false;
	bind_copy(library, &copy);
	return true;
}

void library_forked(struct library *library)
{
	lock_init(&library->publishing);
}
