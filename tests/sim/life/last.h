/* Called at the end of the process, after the destructors of the program and of what is preloaded;
 * NULL: nothing is. */
#pragma once

extern __attribute__((visibility("default"))) void (*last_call)(void);
