/* Inside pace/: whether other processes have work on the device. */
#pragma once

#include "meter.h"

/* Before a launch, while the process has no work on the device. Probes the device at most once in
 * PROBE_EACH_NS. */
void others_probe(struct meter *meter, const struct pace_work *work, uint64_t now_ns);
