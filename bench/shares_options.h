/* The command line of shares. */
#pragma once

#include <stdbool.h>

#define STREAMS_MAX 16
#define WORKERS_MAX 16
#define SECONDS_MAX 600

/* Written by options_read, before there are threads. */
extern struct options {
	const char *kernel; /* lengths in microseconds, with commas */
	const char *round; /* the object to wait for after all of them; NULL: they come at random */
	bool change, alike, graph, by_time, calibrate, live, help;
	unsigned grid, streams, sync_every;
	unsigned threads;   /* 0: one, with streams of its own */
	unsigned in_flight; /* 0: as many as go in */
	unsigned use_pct;   /* 0: the host has nothing else to do */
	double seconds, warm_s;
	double begin_s;      /* of CLOCK_REALTIME; 0: at once */
	double iters_per_us; /* 0: not known */
} options;

/* Ends the program where that is what they say, or they make no sense. */
void options_read(int argc, char **argv);
