/* The questions that the onlooker gets over its wire, and its answers. */
#pragma once

#include <stdint.h>

enum question_kind {
	QUESTION_MEMORY,
	QUESTION_MEMORY_V2,
	QUESTION_PROCESS, /* used: NVML's figure for the pid; 0: not listed */
	QUESTION_PEAK     /* as QUESTION_MEMORY; used: the maximum since the last such question */
};

struct question {
	enum question_kind kind;
	unsigned gpu;
	int pid;
};

struct answer {
	int result; /* nvmlReturn_t */
	uint64_t total, free, used;
};
