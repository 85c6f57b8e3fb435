/* Small files that others read while they change. */
#pragma once

#include "fault.h"

/* Makes dir/name, or replaces it, as a file of mode 0644 with that text. The text is written to
 * another file, which is renamed: a reader sees the old text or the new, whole. 0, or a negative
 * errno with a fault. */
int file_write(const char *dir, const char *name, const char *text, struct fault *fault);
