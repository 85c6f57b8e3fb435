/* Shows the driver only the slice's GPUs, by CUDA_VISIBLE_DEVICES, while cuInit runs. */
#pragma once

#include <stdbool.h>

/* Before the driver's cuInit. False: there is no policy, or the driver is initialised already. */
bool visible_devices_begin(void);
/* After the driver's cuInit, where visible_devices_begin returned true. */
void visible_devices_end(bool initialised);

/* In a forked child: the environment is the application's own again. */
void visible_devices_forked(void);
