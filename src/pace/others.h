/* Inside pace/: whether other processes have work on the device. */
#pragma once

#include "meter.h"

/* Before a launch. idle: the process has no work on the device. Looks now and then only. */
void others_probe(struct meter *meter, const struct pace_work *work, uint64_t now_ns, bool idle);
