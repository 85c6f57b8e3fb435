/* The driver is shown the slice's GPUs alone: CUDA_VISIBLE_DEVICES, for as long as cuInit takes. */
#pragma once

#include <stdbool.h>

/* Before the driver's cuInit. False: there is no policy, or the driver is initialised already. */
bool hiding_begin(void);
/* Behind it, where hiding_begin was true. */
void hiding_end(bool initialised);

void hiding_forget(void); /* in a forked child: the environment is what the application made it */
