/* Where libvgpu.so is. */
#pragma once

#include <limits.h>

#include "fault.h"

/* Its absolute path: where VGPU_LIBRARY says, else beside this program, else where it would be
 * installed. -ENOENT or -EINVAL with a fault. */
int library_find(char ret_path[PATH_MAX], struct fault *fault);
