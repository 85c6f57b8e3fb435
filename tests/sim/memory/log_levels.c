/* LIBCUDA_LOG_LEVEL: which lines each level adds to those of the level before. */
#include <string.h>

#include "cuda_api.h"

/* A program that joins a slice, is refused an allocation, and makes and frees another. */
static void work(void)
{
	cuda_start(0);
	refused(8 * GIB);
	give(take(100 * MIB));
}

struct level {
	const char *name, *value; /* value NULL: not set */
	bool joins, refuses, allocates;
};

static const struct level levels[] = {
	{"errors", "0", false, false, false},      {"warnings", "1", false, false, false},
	{"by_default", NULL, false, false, false}, {"information", "2", true, false, false},
	{"refusals", "3", true, true, false},      {"everything", "4", true, true, true},
	{"nonsense", "loud", false, false, false},
};

static void says(const struct level *level)
{
	struct said said;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	env_set("CUDA_DEVICE_SM_LIMIT", "30");
	env_set("LIBCUDA_LOG_LEVEL", level->value);
	said = member_listen(work);
	CHECK_EQUAL(said.status, 0);
	CHECK_EQUAL(strstr(said.err, "joins the slice with the region") != NULL, level->joins);
	CHECK_EQUAL(strstr(said.err, "GPU 0: memory 4 GiB, time 30 %") != NULL, level->joins);
	CHECK_EQUAL(strstr(said.err, "refused 8589934592 bytes on GPU 0: the slice holds ") != NULL,
		    level->refuses);
	CHECK_EQUAL(strstr(said.err, "allocated 104857600 bytes on GPU 0: the slice holds ") !=
			    NULL,
		    level->allocates);
	CHECK_EQUAL(strstr(said.err, "freed 104857600 bytes on GPU 0: the slice holds ") != NULL,
		    level->allocates);
	if (!level->joins)
		CHECK_EQUAL(lines_in(said.err), 0);
}

TEST_TABLE(levels, says);
