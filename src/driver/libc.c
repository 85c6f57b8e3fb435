#include "libc.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "objects.h"

struct fill {
	struct libc_functions *functions;
	bool libc_only;
	const void *after; /* dynamic section of the object to start after; NULL: from the first */
};

static void take(const struct object *object, const char *name, void *slot)
{
	void *found, **pointer = slot;

	if (!*pointer && (found = object_symbol(object, name)))
		*pointer = found;
}

static bool fill_from(void *arg, const struct object *object)
{
	struct fill *fill = arg;
	struct libc_functions *f = fill->functions;
	const char *soname;

	if (fill->after) {
		if (object->dynamic == fill->after)
			fill->after = NULL;
		return false;
	}
	soname = object_soname(object);
	if (fill->libc_only && strcmp(soname, "libc.so.6") != 0 &&
	    strcmp(soname, "libdl.so.2") != 0)
		return false;
	take(object, "dlsym", &f->dlsym);
	take(object, "dlvsym", &f->dlvsym);
	take(object, "dlopen", &f->dlopen);
	take(object, "dlclose", &f->dlclose);
	take(object, "dlerror", &f->dlerror);
	take(object, "dlinfo", &f->dlinfo);
	return f->dlsym && f->dlvsym && f->dlopen && f->dlclose && f->dlerror && f->dlinfo;
}

/*
 * Before glibc 2.34 these functions are in libdl, and a program that links the driver alone may not
 * have loaded libdl. There, libc itself loads libraries by a function of its own (for NSS and
 * iconv). This function returns once libdl is ready for use. That holds even if another thread has
 * just begun to load libdl and the object is in the list already.
 */
static void load_libdl(void)
{
	enum { FROM_DLOPEN = (int)0x80000000 }; /* __RTLD_DLOPEN: glibc's own callers set it */
	void *(*open_library)(const char *name, int mode) = NULL;
	struct object libc;

	if (objects_named("libc.so.6", &libc))
		take(&libc, "__libc_dlopen_mode", &open_library);
	if (open_library)
		open_library("libdl.so.2", RTLD_NOW | FROM_DLOPEN);
}

/* A table that is filled once. */
struct table {
	struct libc_functions functions;
	bool filled; /* release after the functions, acquire before they are read */
};

static const struct libc_functions *filled(struct table *table, bool libc_only)
{
	struct libc_functions found = {0};
	struct object self;
	struct fill fill = {&found, libc_only, NULL};

	if (__atomic_load_n(&table->filled, __ATOMIC_ACQUIRE))
		return &table->functions;
	load_libdl();
	if (objects_containing(table, &self))
		fill.after = libc_only ? NULL : self.dynamic;
	objects_each(fill_from, &fill);
	table->functions = found; /* two threads at once store the same */
	__atomic_store_n(&table->filled, true, __ATOMIC_RELEASE);
	return &table->functions;
}

const struct libc_functions *libc_functions(void)
{
	static struct table table;

	return filled(&table, true);
}

const struct libc_functions *next_functions(void)
{
	static struct table table;

	return filled(&table, false);
}
