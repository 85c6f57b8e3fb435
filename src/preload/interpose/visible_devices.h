/* The driver is shown the slice's GPUs alone: CUDA_VISIBLE_DEVICES, for as long as cuInit takes. */
#pragma once

#include <stdbool.h>

/* Before the driver's cuInit. False: there is no policy, or the driver is initialised already. */
bool visible_devices_begin(void);
/* Behind it, where visible_devices_begin was true. */
void visible_devices_end(bool initialised);

void visible_devices_forget(
	void); /* in a forked child: the environment is what the application made it */
