/*
 * Files on the host that runtimes mount into containers. A file is written whole and put in its
 * place by a rename, so a running container keeps the file that it has mounted. All functions
 * return 0 or a negative errno.
 */
#pragma once

#include "bytes.h"

#define DISK_NEW ".new-" /* prefix of a file or directory that is not whole yet */

/* Adds all bytes of the file to ret_data. */
int disk_read(const char *path, struct bytes *ret_data);

/* Writes a file of mode 0644 and syncs it to the disk. The caller puts it, or its directory, in
 * place by a rename. */
int disk_write(const char *path, const void *data, size_t len);

/*
 * Ensures that dir/name is a file of mode 0644 with these bytes; dir must exist. If a runtime
 * does not find a file that it is to mount, it makes an empty directory there, and this
 * function replaces that. Returns -EISDIR if there is a directory that is not empty.
 */
int disk_keep(const char *dir, const char *name, const void *data, size_t len);
