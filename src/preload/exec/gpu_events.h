/* The driver's functions with which src/pace measures. */
#pragma once

#include "pace.h"

extern const struct pace_driver gpu_events_driver;
