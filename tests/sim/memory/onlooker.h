/* What the onlooker is asked over its wire, and what it answers. */
#pragma once

#include <stdint.h>

enum question_kind {
	QUESTION_MEMORY,
	QUESTION_MEMORY_V2,
	QUESTION_PROCESS, /* used: what is counted for the pid, 0 if it is not there */
	QUESTION_PEAK     /* as memory; used: the most since the last question of this kind */
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
