#include "library.h"

#include <errno.h>
#include <string.h>

#include "disk.h"

int library_read(const char *library, const char *setting, struct bytes *ret_library,
		 struct fault *fault)
{
	int error = disk_read(library, ret_library);

	if (!error && ret_library->len == 0)
		error = -ENODATA;
	return error ? fault_set(fault, error,
				 "cannot copy %.200s: %s; install the package vgpu on the node, or "
				 "set %s to the library's path",
				 library, strerror(-error), setting)
		     : 0;
}

int library_keep(const char *dir, const struct bytes *library, struct fault *fault)
{
	int error = disk_keep(dir, LIBRARY_NAME, library->data, library->len);

	if (error == -EISDIR)
		return fault_set(fault, error,
				 "%.200s/" LIBRARY_NAME " is a directory that is not empty: "
				 "remove it",
				 dir);
	return error ? fault_set(fault, error, "cannot write %.200s/" LIBRARY_NAME ": %s", dir,
				 strerror(-error))
		     : 0;
}
