/* Which functions of the driver are known, by name: those of api/symbols. */
#pragma once

#include <stdbool.h>

/* Whether the list has the name, as cuGetProcAddress takes it. Any thread may ask. */
bool names_known(const char *name);

/* Whether a function of that name may make the device hold more memory, as far as names tell. */
bool names_sound_like_memory(const char *name);
