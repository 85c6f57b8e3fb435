/* What the onlooker is asked over its wire, and what it answers. */
#pragma once

#include <stdint.h>

enum question_kind {
	QUESTION_MEMORY,
	QUESTION_MEMORY_V2,
	QUESTION_PROCESS, /* used: what is counted for the pid, 0 if it is not there */
	QUESTION_WATCH, /* as memory; then the highest figure is looked for until the next question
			 */
	QUESTION_WATCH_END /* used: the highest, samples: of how many */
};

struct question {
	enum question_kind kind;
	unsigned gpu;
	int pid;
	unsigned pause_ms; /* of a watch, between two looks */
};

struct answer {
	int result; /* nvmlReturn_t */
	uint64_t total, free, used, samples;
};
