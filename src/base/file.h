/* Small files that other processes read while they change. */
#pragma once

#include <stddef.h>

#include "fault.h"

/* Creates or replaces dir/name as a file of mode 0644 with that text. The text is written to
 * another file, which is then renamed: a reader sees the whole old text or the whole new text. So
 * does a reader after a power failure, as the text is on the disk before the rename. 0, or a
 * negative errno with a fault. */
int file_write(const char *dir, const char *name, const char *text, struct fault *fault);

/* Reads the file into buf, up to its end or size - 1 bytes, with a NUL after them. A symbolic link
 * is not followed, and a FIFO is not waited for. Returns the length, or a negative errno, and buf
 * is "" then. */
long file_read(const char *path, char *buf, size_t size);
