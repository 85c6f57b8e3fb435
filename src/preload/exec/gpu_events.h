/* The driver, as src/pace measures with it. */
#pragma once

#include "pace.h"

extern const struct pace_driver gpu_events_driver;
