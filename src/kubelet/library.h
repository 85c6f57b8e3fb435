/*
 * The library that containers get. It is a copy next to their policies, which no package
 * removes. For a file that it is to mount and does not find, containerd would make a directory.
 */
#pragma once

#include "bytes.h"
#include "fault.h"

#define LIBRARY_NAME "libvgpu.so" /* name of the copy */

/* Reads the library into ret_library. setting: the name of the setting with its path, for the
 * fault. Returns 0, or a negative errno with a fault. */
int library_read(const char *library, const char *setting, struct bytes *ret_library,
		 struct fault *fault);

/* Ensures that dir/LIBRARY_NAME is a file with these bytes (disk_keep). Returns 0, or a
 * negative errno with a fault. */
int library_keep(const char *dir, const struct bytes *library, struct fault *fault);
