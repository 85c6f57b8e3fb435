/* Where specifications are. Container runtimes read a directory's files named *.json or *.yaml at
 * any time. So a file is replaced whole (file_write), by way of one with another ending. */
#include <stdio.h>
#include <string.h>

#include "directory.h"
#include "file.h"
#include "spec.h"

void container_spec_path(const struct container_places *places, const char *name,
			 char ret_path[PATH_MAX])
{
	snprintf(ret_path, PATH_MAX, "%s/vgpu-%.63s.json", places->specs, name);
}

int container_spec_write(const char *path, const char *text, struct fault *fault)
{
	return directory_write_file(path, text, fault);
}
