/* Called at the end of the process, after the destructors of the program and of preloaded
 * libraries; NULL: nothing is called. */
#pragma once

extern __attribute__((visibility("default"))) void (*last_call)(void);
