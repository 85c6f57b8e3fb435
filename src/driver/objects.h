/*
 * The ELF objects loaded into this process, in load order: the program, preloaded libraries, their
 * libraries, and objects that were dlopened. This component answers questions that dlsym cannot
 * answer here, because libvgpu.so exports dlsym itself, or because the answer depends on the
 * caller.
 *
 * Only objects of the program's own namespace are seen (dlmopen(3) makes others). Everything here
 * takes the dynamic loader's lock, as dlsym does, and nothing else.
 */
#pragma once

#include <link.h>
#include <stdbool.h>
#include <stddef.h>

struct object {
	const char *path;          /* "" for the program itself */
	ElfW(Addr) base;           /* the object's addresses are relative to this one */
	const ElfW(Dyn) * dynamic; /* names the object for good: an object has one */
	const ElfW(Phdr) * segments;
	size_t segment_count;
};

/* Calls each(arg, object) in load order until it returns true; returns whether it did. The object
 * is good for the call only, unless it is known to stay loaded. */
bool objects_each(bool (*each)(void *arg, const struct object *object), void *arg);

/* The object that holds an address, or the first with that DT_SONAME. */
bool objects_containing(const void *address, struct object *ret_object);
bool objects_named(const char *soname, struct object *ret_object);

const char *object_soname(const struct object *object); /* "" when it has none */

/* The object's own definition of that name, in its default version; NULL if it has none. */
void *object_symbol(const struct object *object, const char *name);

/*
 * Makes the object's own calls and pointers to imported functions go elsewhere: choose(name) says
 * where to, or NULL to leave one alone. For objects loaded with RTLD_DEEPBIND, which prefer their
 * own libraries' symbols to ours.
 */
void object_redirect(const struct object *object, void *(*choose)(const char *name));
