/* What a policy says of gangs holds, whatever signs there are, and also when it is changed. */
#include "gang.h"

#include <sys/stat.h>

/* Each file is replaced at once. */
static void write_file(const char *name, const char *text)
{
	char beside[256], file[256];

	snprintf(beside, sizeof(beside), "policy/.%s", name);
	snprintf(file, sizeof(file), "policy/%s", name);
	scene_write(beside, text);
	CHECK(rename(scene_path(beside), scene_path(file)) == 0);
}

static void write_policy(const char *gpus, const char *slice)
{
	for (unsigned gpu = 0; gpu < DEVICES; gpu++)
		write_file(gpu_uuid(gpu), gpus);
	write_file("slice", slice);
}

static void start(const char *gpus, const char *slice)
{
	machine(NULL);
	CHECK(mkdir(scene_path("policy"), 0700) == 0);
	write_policy(gpus, slice);
	env_set("VGPU_POLICY", scene_path("policy"));
	start_all();
}

/* Devices 0 and 1 can wait for each other. */
static void sign(void)
{
	CHECK_OK(cuCtxEnablePeerAccess(contexts[1], 0));
}

TEST(found)
{
	start("memory = unlimited\ncores = 50\n", "# nothing\n");
	CHECK_EQUAL(members(), 0);
	sign();
	CHECK_EQUAL(members(), 1 | 2);
}

TEST(no_gang)
{
	start("memory = unlimited\ncores = 50\n", "gang = no\n");
	sign();
	CHECK_EQUAL(members(), 0);
}

TEST(all_a_gang)
{
	start("memory = unlimited\ncores = 50\n", "gang = yes\n");
	CHECK_EQUAL(members(), ALL);
}

TEST(changed)
{
	start("memory = unlimited\ncores = 50\n", "# nothing\n");
	sign();
	CHECK_EQUAL(members(), 1 | 2);
	write_policy("memory = unlimited\ncores = 50\n", "gang = no\n");
	become(0);
	write_policy("memory = unlimited\ncores = 50\n", "# nothing\n");
	become(1 | 2);
	write_policy("memory = unlimited\ncores = 50\n", "gang = yes\n");
	become(ALL);
	write_policy("memory = unlimited\ncores = 50\n",
		     "gang = .some\n"); /* is no policy: nothing changes */
	sleep_ms(200);
	CHECK_EQUAL(members(), ALL);
	write_policy("memory = unlimited\ncores = 50\n", "gang = no\n");
	become(0);
}

/* The signs came first. */
TEST(limited_later)
{
	start("memory = 8G\n", "# nothing\n");
	sign();
	CHECK_EQUAL(members(), 0);
	write_policy("memory = 8G\ncores = 50\n", "# nothing\n");
	become(1 | 2);
}

/* What it does not understand, it refuses. */
TEST(words_refused)
{
	machine(NULL);
	CHECK(mkdir(scene_path("policy"), 0700) == 0);
	write_policy("memory = unlimited\ncores = 50\n", "gang = .train\n");
	env_set("VGPU_POLICY", scene_path("policy"));
	CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
}
