/*
 * The library that containers get. It is a copy that lies beside their policies: no package removes
 * it, and containerd would make a directory of a file that it is to mount and does not find.
 */
#pragma once

#include "bytes.h"
#include "fault.h"

#define LIBRARY_NAME "libvgpu.so" /* of the copy */

/* Reads the library. setting: what the user writes its path to. 0, or a negative errno with a
 * fault. */
int library_read(const char *library, const char *setting, struct bytes *ret_library,
		 struct fault *fault);

/* Makes dir/LIBRARY_NAME a file with these bytes (disk_keep). 0, or a negative errno with a fault.
 */
int library_keep(const char *dir, const struct bytes *library, struct fault *fault);
