/*
 * The library that containers get. It is a copy that lies beside their policies: no package removes
 * it, and containerd would make a directory of a file that it is to mount and does not find.
 */
#pragma once

#include "fault.h"

#define LIBRARY_NAME "libvgpu.so" /* of the copy */

/* Makes dir/LIBRARY_NAME a copy of the library, unless it is one. It is replaced in one step:
 * containers that run keep the one that they have mounted. dir is there. setting: what the user
 * writes the library's path to. 0, or a negative errno with a fault. */
int library_copy(const char *dir, const char *library, const char *setting, struct fault *fault);
