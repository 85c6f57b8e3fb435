/* How busy GPUs are, as a process sees it that no slice has. */
#pragma once

/* From now on, of the first so many GPUs; nothing without the program `busy` in $BUSY. */
void watch_begin(unsigned gpus);
/* Prints it: a line "busy", and a figure for each GPU. */
void watch_end(void);
