/*
 * Files on the host that runtimes mount into containers. A file is written whole, and takes its
 * place by a rename: a container that runs keeps the file that it has mounted. All functions return
 * 0 or a negative errno.
 */
#pragma once

#include "bytes.h"

#define DISK_NEW ".new-" /* before the name of a file or directory that is not whole yet */

/* Adds all bytes of the file. */
int disk_read(const char *path, struct bytes *ret_data);

/* Writes a file of mode 0644, and has it on the disk. The caller renames it, or what it is in. */
int disk_write(const char *path, const void *data, size_t len);

/*
 * Makes dir/name a file of mode 0644 with these bytes, unless it is one. dir is there. A runtime
 * makes an empty directory of a file that it is to mount and does not find: that one gives way.
 * -EISDIR: there is a directory that is not empty.
 */
int disk_keep(const char *dir, const char *name, const void *data, size_t len);
