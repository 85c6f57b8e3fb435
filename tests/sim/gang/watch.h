/* Measures how busy GPUs are, by a process outside of all slices. */
#pragma once

/* Begins to measure the first `gpus` GPUs. Without the program `busy` in $BUSY, it does
 * nothing. */
void watch_begin(unsigned gpus);
/* Ends the measurement and prints a line: "busy", and a figure for each GPU. */
void watch_end(void);
