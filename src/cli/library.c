/*
 * From the build directory (the library lies beside the program), from an installation under any
 * prefix, moved as a whole or not, and from Debian's packages (lib/<multiarch>/vgpu). VGPU_LIBRARY,
 * when set, is the only place looked at: a mistake in it should not go unnoticed.
 */
#include "library.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env.h"

#define LIBRARY "libvgpu.so"

/* Relative to the program's directory, or absolute. */
static const char *const places[] = {
	LIBRARY,
	"../lib/" VGPU_MULTIARCH "/vgpu/" LIBRARY,
	"../lib/vgpu/" LIBRARY,
	"../lib/" LIBRARY,
	VGPU_LIBDIR "/vgpu/" LIBRARY,
	VGPU_LIBDIR "/" LIBRARY,
};

/* LD_PRELOAD separates by blanks and colons, and has no way to quote them. */
static int check_path(const char *path, struct fault *fault)
{
	if (strpbrk(path, " \t\n:"))
		return fault_set(fault, -EINVAL,
				 "%.300s cannot be preloaded, because its path has a blank or a "
				 "colon: put a link elsewhere and set VGPU_LIBRARY to it",
				 path);
	return 0;
}

/* The program's directory. */
static int own_directory(char dir[PATH_MAX], struct fault *fault)
{
	ssize_t len = readlink("/proc/self/exe", dir, PATH_MAX - 1);
	char *slash;

	if (len < 0)
		return fault_set(fault, -errno,
				 "/proc/self/exe cannot be read (%s), so " LIBRARY
				 " cannot be found: set VGPU_LIBRARY to its path",
				 strerror(errno));
	dir[len] = '\0';
	slash = strrchr(dir, '/');
	if (slash)
		*slash = '\0';
	return 0;
}

static bool is_there(const char *dir, const char *place, char ret_path[PATH_MAX])
{
	char path[PATH_MAX];
	int len = place[0] == '/' ? snprintf(path, sizeof(path), "%s", place)
				  : snprintf(path, sizeof(path), "%s/%s", dir, place);

	return len < (int)sizeof(path) && realpath(path, ret_path) && access(ret_path, R_OK) == 0;
}

int library_find(char ret_path[PATH_MAX], struct fault *fault)
{
	const char *named = env_get("VGPU_LIBRARY");
	char dir[PATH_MAX];
	int error;

	if (named) {
		/* Made absolute, but links stay: check_path's cure is one. */
		if (access(named, R_OK) != 0)
			return fault_set(fault, -ENOENT,
					 "VGPU_LIBRARY is %.300s, which cannot be read (%s): set "
					 "it to the path of " LIBRARY ", or unset it",
					 named, strerror(errno));
		if (named[0] != '/' && !getcwd(dir, sizeof(dir)))
			return fault_set(fault, -errno,
					 "VGPU_LIBRARY is a relative path, and this directory has "
					 "none: make it absolute");
		if (snprintf(ret_path, PATH_MAX, "%s%s%s", named[0] == '/' ? "" : dir,
			     named[0] == '/' ? "" : "/", named) >= PATH_MAX)
			return fault_set(fault, -EINVAL, "VGPU_LIBRARY is too long a path");
		return check_path(ret_path, fault);
	}
	error = own_directory(dir, fault);
	if (error)
		return error;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (is_there(dir, places[i], ret_path))
			return check_path(ret_path, fault);
	return fault_set(fault, -ENOENT,
			 LIBRARY " is neither in %.200s nor in " VGPU_LIBDIR
				 ": set VGPU_LIBRARY to its path",
			 dir);
}
