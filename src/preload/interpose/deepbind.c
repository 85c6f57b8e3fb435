/*
 * The loader searches a plain file name in the run path of the object that calls dlopen, which is
 * this library here. So the directories of the application's object are tried first, in the
 * loader's own order (dlinfo, RTLD_DI_SERINFO). The cache and the default directories do not depend
 * on the caller.
 */
#include "deepbind.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "cuda.h"
#include "hooks.h"
#include "libc.h"
#include "nvml.h"
#include "objects.h"
#include "sys.h"

#define SEARCH_BYTES_MAX 16384

/* dir/name if there is such a file. */
static bool exists_in(const char *dir, const char *name, char path[PATH_MAX])
{
	struct stat status;
	int len = snprintf(path, PATH_MAX, "%s/%s", dir, name);

	return len > 0 && len < PATH_MAX && sys_stat(path, &status) == 0;
}

/* The directories of an object's search path, into a buffer of SEARCH_BYTES_MAX. */
static bool search_path_of(void *handle, Dl_serinfo *ret_search)
{
	const struct libc_functions *libc = libc_functions();

	return libc->dlinfo(handle, RTLD_DI_SERINFOSIZE, ret_search) == 0 &&
	       ret_search->dls_size <= SEARCH_BYTES_MAX &&
	       libc->dlinfo(handle, RTLD_DI_SERINFO, ret_search) == 0;
}

/* A handle of the object that the caller lies in, to be closed; NULL if there is none. */
static void *handle_of(const void *caller)
{
	struct object object;

	if (!objects_containing(caller, &object))
		return NULL;
	return libc_functions()->dlopen(*object.path ? object.path : NULL, RTLD_LAZY | RTLD_NOLOAD);
}

static bool find_in(const Dl_serinfo *search, const char *name, char path[PATH_MAX])
{
	for (unsigned i = 0; i < search->dls_cnt; i++)
		if (exists_in(search->dls_serpath[i].dls_name, name, path))
			return true;
	return false;
}

/* Where the caller's own search path has the file. */
static bool find_for_caller(const char *name, const void *caller, char path[PATH_MAX])
{
	void *handle = handle_of(caller), *search;
	bool found;

	if (!handle || sys_map_private(SEARCH_BYTES_MAX, &search) != 0)
		return false;
	found = search_path_of(handle, search) && find_in(search, name, path);
	sys_unmap(search, SEARCH_BYTES_MAX);
	libc_functions()->dlclose(handle);
	return found;
}

static bool is_loaded(const char *name)
{
	void *handle = libc_functions()->dlopen(name, RTLD_LAZY | RTLD_NOLOAD);

	if (handle)
		libc_functions()->dlclose(handle);
	return handle != NULL;
}

/* The directory of the object that the caller lies in. */
static bool directory_of(const void *caller, char dir[PATH_MAX])
{
	struct object object;
	char *end;
	long len = 0;

	if (!objects_containing(caller, &object))
		return false;
	if (*object.path)
		len = snprintf(dir, PATH_MAX, "%s", object.path);
	else
		len = sys_readlink("/proc/self/exe", dir, PATH_MAX);
	end = len > 0 && len < PATH_MAX ? strrchr(dir, '/') : NULL;
	if (end)
		*end = '\0';
	return end != NULL;
}

/* path with a leading $ORIGIN as the caller's directory, which the loader would take for ours. */
static const char *expand_origin(const char *path, const void *caller, char expanded[PATH_MAX])
{
	static const char *const tokens[] = {"$ORIGIN/", "${ORIGIN}/"};
	char dir[PATH_MAX];

	for (unsigned i = 0; i < 2; i++) {
		size_t len = strlen(tokens[i]);

		if (strncmp(path, tokens[i], len) == 0 && directory_of(caller, dir) &&
		    exists_in(dir, path + len, expanded))
			return expanded;
	}
	return path;
}

/* Notes the last object of the load order, when called for each. */
static bool note_last(void *arg, const struct object *object)
{
	*(const void **)arg = object->dynamic;
	return false;
}

static void *choose(const char *name)
{
	const struct hook *hook = hook_named(name);

	return hook ? hook->ours : NULL;
}

static bool is_driver(const struct object *object)
{
	const char *soname = object_soname(object);

	return strcmp(soname, CUDA_SONAME) == 0 || strcmp(soname, NVML_SONAME) == 0;
}

/* Redirects the objects that follow *arg in the load order. *arg is NULL once it was passed. */
static bool redirect_newer(void *arg, const struct object *object)
{
	const void **after = arg;

	if (!*after && !is_driver(object))
		object_redirect(object, choose);
	if (object->dynamic == *after)
		*after = NULL;
	return false;
}

void *deepbind_open(const char *path, int mode, const void *caller)
{
	const struct libc_functions *libc = libc_functions();
	char found[PATH_MAX];
	const void *last = NULL;
	void *handle;

	if (!libc->dlinfo) /* then no other function of libc was found either */
		return NULL;
	objects_each(note_last, &last);
	if (path && strchr(path, '/'))
		path = expand_origin(path, caller, found);
	else if (path && !is_loaded(path) && find_for_caller(path, caller, found))
		path = found;
	handle = libc->dlopen(path, mode);
	if (handle)
		objects_each(redirect_newer, &last);
	return handle;
}
