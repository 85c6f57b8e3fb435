/* Reading the command line of shares, by a table of what can be said there. */
#include "shares_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

struct options options = {
	.kernel = "1000",
	.grid = 132,
	.streams = 1,
	.in_flight = 8,
	.sync_every = 256,
	.seconds = 5,
	.warm_s = 0.2,
};

static const char usage[] =
	"usage: shares [OPTION...]\n"
	"  --kernel=US[,US...]  what a kernel takes; of several in random order (1000)\n"
	"  --round=WAIT         in that order, of one function, and then wait for the stream, the\n"
	"                       context or an event, ask an event, or copy: stream, context, "
	"event,\n"
	"                       questions, copy\n"
	"  --alike              and all of one function, instead of one each\n"
	"  --change             every other second ten times that, of one function\n"
	"  --grid=N             blocks of a kernel (132)\n"
	"  --streams=N          in turn (1)\n"
	"  --threads=N          each with its own default stream, instead\n"
	"  --in-flight=N        launches ahead of the GPU, on each stream (8); 0: as many as go "
	"in,\n"
	"  --sync-every=N       and wait for them all after so many (256)\n"
	"  --graph              of 20 such kernels, instead of kernels\n"
	"  --use=PCT            the host has other work, which leaves the GPU so much\n"
	"  --by-time            count the time the GPU was at work, not what it did:\n"
	"                       for one stream, and kernels that mostly follow each other\n"
	"  --seconds=S          how long is measured (5)\n"
	"  --warm=S             and how long not, before (0.2)\n"
	"  --begin=TIME         begin then, in seconds since 1970\n"
	"  --live               print each second's share as it is over\n"
	"  --calibrate          print iters_per_us of that grid, and end\n"
	"  --iters-per-us=X     do not calibrate: it was X\n"
	"prints share, and what it is by work; the shares of each second and of the warming up, "
	"of 1;\n"
	"CPU time in percent; launches\n";

enum kind { FLAG, WHOLE, REAL, TEXT };

static const struct {
	const char *name;
	enum kind kind;
	void *value;
	double least, most;
} takes[] = {
	{"kernel", TEXT, &options.kernel, 0, 0},
	{"round", TEXT, &options.round, 0, 0},
	{"alike", FLAG, &options.alike, 0, 0},
	{"change", FLAG, &options.change, 0, 0},
	{"grid", WHOLE, &options.grid, 1, 1e6},
	{"streams", WHOLE, &options.streams, 1, STREAMS_MAX},
	{"threads", WHOLE, &options.threads, 1, WORKERS_MAX},
	{"in-flight", WHOLE, &options.in_flight, 0, 1000},
	{"sync-every", WHOLE, &options.sync_every, 1, 1e5},
	{"graph", FLAG, &options.graph, 0, 0},
	{"by-time", FLAG, &options.by_time, 0, 0},
	{"use", WHOLE, &options.use_pct, 1, 100},
	{"seconds", REAL, &options.seconds, 0.1, SECONDS_MAX},
	{"warm", REAL, &options.warm_s, 0, SECONDS_MAX},
	{"begin", REAL, &options.begin_s, 0, 1e12},
	{"live", FLAG, &options.live, 0, 0},
	{"calibrate", FLAG, &options.calibrate, 0, 0},
	{"iters-per-us", REAL, &options.iters_per_us, 1e-6, 1e9},
	{"help", FLAG, &options.help, 0, 0},
};
#define TAKES (sizeof(takes) / sizeof(takes[0]))

static double number(double least, double most)
{
	char *end;
	double value = strtod(optarg, &end);

	if (end == optarg || *end || !(value >= least && value <= most)) {
		fprintf(stderr, "shares: %s is no number from %g to %g\n", optarg, least, most);
		exit(2);
	}
	return value;
}

static bool read_all(int argc, char **argv)
{
	struct option names[TAKES + 1] = {{NULL, 0, NULL, 0}};
	int which;

	for (size_t i = 0; i < TAKES; i++)
		names[i] = (struct option){takes[i].name, takes[i].kind != FLAG, NULL, (int)i};
	while ((which = getopt_long(argc, argv, "", names, NULL)) != -1) {
		if (which == '?')
			return false;
		if (takes[which].kind == FLAG)
			*(bool *)takes[which].value = true;
		else if (takes[which].kind == TEXT)
			*(const char **)takes[which].value = optarg;
		else if (takes[which].kind == REAL)
			*(double *)takes[which].value =
				number(takes[which].least, takes[which].most);
		else
			*(unsigned *)takes[which].value =
				(unsigned)number(takes[which].least, takes[which].most);
	}
	if (options.by_time && (options.threads || options.streams > 1 || options.live))
		return false;
	return optind == argc && !(options.threads && (options.streams > 1 || options.live));
}

void options_read(int argc, char **argv)
{
	if (read_all(argc, argv) && !options.help)
		return;
	fputs(usage, options.help ? stdout : stderr);
	exit(options.help ? 0 : 2);
}
