/*
 * Inside pace/: device_util, a process's part of a device's time.
 *
 * HAMi's monitor reads the figure from the file, and nothing runs in this process while it sleeps.
 * So the figure is 0 whenever the process has waited for all that it launched, and comes back with
 * the next launch. While the process is at work, the figure is its part of the device's time, over
 * at least a second of work. So the mean of the figures that a monitor reads is the process's part
 * of all the time, whatever pauses it makes.
 */
#pragma once

#include "meter.h"

/* Before a launch. Times are clock_steady_ns(), here as below. */
void utilisation_begin(struct meter *meter, uint64_t now_ns);

/* The process has waited for all that it launched: the figure is 0 until it launches again. */
void utilisation_rest(struct meter *meter, uint64_t now_ns);

/* After a launch: makes the figure once in a second of work. */
void utilisation_show(struct meter *meter, uint64_t now_ns);
