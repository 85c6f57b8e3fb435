/* Which functions of the driver are known, by name: those of api/symbols. */
#pragma once

#include <stdbool.h>

/* Whether a driver that exports the name, or hands it out by cuGetProcAddress, is newer than the
 * list in a way that matters: the list does not have the name, and the name sounds as if the
 * function could make the device hold more memory. Any thread may ask. */
bool names_is_new_memory(const char *name);
