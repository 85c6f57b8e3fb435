/* The driver, as src/pace measures with it. */
#pragma once

#include "cuda_abi.h"
#include "pace.h"

extern const struct pace_driver measure_driver;

/* Whether the event was recorded, and is not reached yet. */
bool measure_is_pending(CUevent event);
