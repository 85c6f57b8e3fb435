/* Small files that other processes read while they change. */
#pragma once

#include "fault.h"

/* Creates or replaces dir/name as a file of mode 0644 with that text. The text is written to
 * another file, which is then renamed: a reader sees the whole old text or the whole new text. So
 * does a reader after a power failure, as the text is on the disk before the rename. 0, or a
 * negative errno with a fault. */
int file_write(const char *dir, const char *name, const char *text, struct fault *fault);
