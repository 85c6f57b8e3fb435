/*
 * Processes of one slice that differ: of another user, with another copy of the library, with
 * another clock. They are held together all the same.
 */
#include "life.h"
#include "spaces.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

/* -- two of the slice, the second one different --------------------------------------------------
 */

static void hold(int wire)
{
	cuda_start(0);
	for (;;) { /* what it hears: to hold so much, or to ask in vain for as much */
		uint64_t bytes = hear(wire);
		CUdeviceptr held;

		if (bytes % 2) {
			refused(bytes);
			tell(wire, 0);
			continue;
		}
		held = take_soon(bytes);
		tell(wire, bytes);
		hear(wire);
		give(held);
		tell(wire, 0);
	}
}

static void does(const struct member *member, uint64_t word, uint64_t answer)
{
	tell(member->wire, word);
	CHECK_EQUAL(hear(member->wire), answer);
}

#define REFUSED(bytes) ((bytes) | 1)

/* Both are held together; the one that dies leaves its share to the other. */
static void share_quota(const struct member *a, struct member *b)
{
	does(a, 400 * MIB, 400 * MIB);
	does(b, REFUSED(300 * MIB), 0);
	does(b, 100 * MIB, 100 * MIB);
	CHECK_SOON_EQUAL(outside_used(0), 2 * OUTSIDE + 500 * MIB);
	CHECK_EQUAL(ledger_used(0), 2 * (CONTEXT + HIDDEN) + 500 * MIB);
	CHECK_SOON_EQUAL(ledger_reap(), 2);
	does(a, 1, 0);
	does(a, REFUSED(550 * MIB), 0);
	member_kill(b);
	does(a, 580 * MIB, 580 * MIB);
	CHECK_SOON_EQUAL(ledger_reap(), 1);
	CHECK_SOON_EQUAL(outside_used(0), OUTSIDE + 580 * MIB);
}

static void hold_plainly(int wire)
{
	hear(wire);
	hold(wire);
}

/* first makes the region, and lives longer. */
static void hold_together(struct member *first, struct member *second)
{
	tell(first->wire, 1);
	does(first, 2 * MIB, 2 * MIB); /* it is there */
	does(first, 1, 0);
	tell(second->wire, 1);
	share_quota(first, second);
	member_kill(first);
	assert_nobody();
}

/* -- users ------------------------------------------------------------------------------------- */

static void become_nobody(void)
{
	CHECK_EQUAL(setgroups(0, NULL), 0);
	CHECK_EQUAL(setgid(NOBODY), 0);
	CHECK_EQUAL(setuid(NOBODY), 0);
}

/* The directory and the driver's state are there for every user, as a GPU is. */
static void let_everybody(void)
{
	const char *obstacle =
		geteuid() ? "to be another user needs root" : space_user_obstacle(NOBODY);

	if (obstacle)
		SKIP("%s", obstacle);
	set_quota(2, 600 * MIB);
	CHECK_EQUAL(chmod(scene_dir, 0777), 0);
	scene_write("machine", "");
	CHECK_EQUAL(chmod(scene_path("machine"), 0666), 0);
}

static void hold_as_nobody(int wire)
{
	hear(wire);
	become_nobody();
	hold(wire);
}

/* Rights that are dropped when CUDA is there already. */
static void drop_rights_and_hold(int wire)
{
	hear(wire);
	cuda_start(0);
	become_nobody();
	hold(wire);
}

struct pair {
	const char *name;
	void (*body)(int wire); /* of the process that is different */
	bool is_first;          /* it makes the region */
};

static const struct pair pairs[] = {
	{"another_user_first", hold_as_nobody, true},
	{"another_user_second", hold_as_nobody, false},
	{"rights_dropped_first", drop_rights_and_hold, true},
	{"rights_dropped_second", drop_rights_and_hold, false},
};

static void beside_plain(const struct pair *pair)
{
	struct member plain, different;

	let_everybody();
	plain = member_start(hold_plainly);
	different = member_start(pair->body);
	hold_together(pair->is_first ? &different : &plain, pair->is_first ? &plain : &different);
}

TEST_TABLE(pairs, beside_plain);

/* -- the library replaced ---------------------------------------------------------------------- */

/* Copies the library to `to`, and makes it another one by a few bytes behind its end. */
static void copy_library(const char *to, bool different)
{
	FILE *from = fopen(getenv("LD_PRELOAD"), "r"), *file = fopen(to, "w");
	char buf[4096];
	size_t len;

	CHECK(from && file);
	while ((len = fread(buf, 1, sizeof(buf), from)) > 0)
		CHECK_EQUAL(fwrite(buf, 1, len, file), len);
	if (different)
		CHECK(fputs("another", file) >= 0);
	CHECK(fclose(from) == 0 && fclose(file) == 0);
}

static char library[256];

TEST_ROLE(hold_executed)
{
	CHECK_EQUAL(argc, 1);
	hold(atoi(argv[0]));
}

static void execute_and_hold(int wire)
{
	char number[16];

	CHECK_EQUAL(fcntl(wire, F_SETFD, 0), 0);
	snprintf(number, sizeof(number), "%d", wire);
	env_set("LD_PRELOAD", library);
	hear(wire);
	role_exec("hold_executed", number);
}

/* Whether it runs with a file that is there no more. */
static bool has_old_library(pid_t pid)
{
	char name[64], line[512];
	bool old = false;
	FILE *maps;

	snprintf(name, sizeof(name), "/proc/%d/maps", pid);
	maps = fopen(name, "r");
	CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		old |= strstr(line, library) && strstr(line, "(deleted)");
	fclose(maps);
	return old;
}

/* Under the programs that run with it: they go on with theirs, new ones start with the new. */
TEST(library_replaced)
{
	struct member old, new;

	set_quota(2, 600 * MIB);
	snprintf(library, sizeof(library), "%s", scene_path("libvgpu.so"));
	for (unsigned old_dies = 0; old_dies < 2; old_dies++) {
		copy_library(library, false);
		old = member_start(execute_and_hold);
		new = member_start(execute_and_hold);
		tell(old.wire, 1);
		does(&old, 2 * MIB, 2 * MIB);
		copy_library(scene_path("new"), true);
		CHECK_EQUAL(rename(scene_path("new"), library), 0);
		does(&old, 1, 0);
		tell(new.wire, 1);
		does(&new, 2 * MIB, 2 * MIB);
		does(&new, 1, 0);
		CHECK(has_old_library(old.pid));
		CHECK(!has_old_library(new.pid));
		share_quota(old_dies ? &new : &old, old_dies ? &old : &new);
		member_kill(old_dies ? &new : &old);
		assert_nobody();
	}
}

/* -- clocks ------------------------------------------------------------------------------------ */

/* Children of this process have booted ten days earlier, from here on. */
static bool shift_clock(void)
{
	static const char offsets[] = "monotonic 864000 0\nboottime 864000 0\n";
	int fd = unshare(CLONE_NEWTIME) ? -1 : open("/proc/self/timens_offsets", O_WRONLY);
	bool done = fd >= 0 && write(fd, offsets, strlen(offsets)) == (ssize_t)strlen(offsets);

	if (fd >= 0)
		close(fd);
	return done;
}

static uint64_t scene_began;

static void hold_later(int wire)
{
	CHECK(now_ms() - scene_began > 863000000);
	hold_plainly(wire);
}

/* In a time namespace of its own: what is held has nothing to do with the time. */
static bool can_shift_clock(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(!shift_clock());
	return waitpid(pid, &status, 0) == pid && status == 0;
}

static const struct pair clocks[] = {
	{"another_clock_first", hold_later, true},
	{"another_clock_second", hold_later, false},
};

static void beside_another_clock(const struct pair *pair)
{
	struct member plain, different;

	if (!can_shift_clock())
		SKIP("no time namespace can be made here");
	set_quota(2, 600 * MIB);
	scene_began = now_ms();
	plain = member_start(hold_plainly);
	CHECK(shift_clock());
	different = member_start(pair->body);
	hold_together(pair->is_first ? &different : &plain, pair->is_first ? &plain : &different);
}

TEST_TABLE(clocks, beside_another_clock);
