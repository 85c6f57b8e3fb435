/*
 * Descriptors: a program that closes all that are open, puts others in their place, has none of the
 * first three, or may have no more. What the driver itself has open is left to it throughout: a
 * program that closes that has no CUDA any more, with the library or without.
 */
#include "life.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *region_path(void)
{
	return getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
}

/* -- lost -------------------------------------------------------------------------------------- */

/* Starts when it is told to: forked before its parent has CUDA. */
static void use(int wire)
{
	hear(wire);
	cuda_start(0);
	take(300 * MIB);
	say_ready(wire);
}

/* The quota is kept from above and from below, whatever became of the descriptor. */
static void assert_kept(void)
{
	CUdeviceptr held = take(500 * MIB);

	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT + 500 * MIB);
	refused(600 * MIB);
	give(held);
	held = take(900 * MIB);
	refused(200 * MIB);
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT + 900 * MIB);
	give(held);
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT);
}

static void closes_all(int wire)
{
	set_quota(1, GIB);
	cuda_start(0);
	give(take(1));
	CHECK(descriptor_of(region_path()) >= 0);
	close_all(3);
	CHECK_EQUAL(descriptor_of(region_path()), -1);
	assert_kept();
	say_ready(wire);
}

TEST(closed)
{
	struct member member = member_begin(closes_all);
	/* Its slot is its own still: the mapping holds on to the open file. */
	CHECK_SOON_EQUAL(ledger_reap(), 1);
	CHECK_EQUAL(ledger_used(0), CONTEXT + HIDDEN);
	member_kill(&member);
	assert_nobody();
}

/* A child of it, forked with the parent's descriptor lost, and one that is run. */
TEST(closed_and_forked)
{
	pid_t child;

	set_quota(2, GIB);
	cuda_start(0);
	take(100 * MIB);
	close_all(3);
	for (unsigned round = 0; round < 5; round++) {
		child = fork();
		if (child == 0) {
			CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
			exit(0);
		}
		expect_ended(child);
		expect_ended(role_spawn("once", NULL, NULL));
		CHECK_SOON_EQUAL(ledger_reap(), 1);
		CHECK_EQUAL(outside_of(0, getpid()), CONTEXT + 100 * MIB);
	}
}

TEST_ROLE(once)
{
	(void)argc;
	(void)argv;
	cuda_start(0);
	take(100 * MIB);
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT + 100 * MIB);
}

static void file_is(int fd, const char *text)
{
	char found[64];
	ssize_t len = pread(fd, found, sizeof(found), 0);

	CHECK_EQUAL(len, strlen(text));
	CHECK(memcmp(found, text, strlen(text)) == 0);
}

/* Another file of the application's in the place of ours. Returns the descriptor. */
static int replace_descriptor(void)
{
	int fd, ours = descriptor_of(region_path());

	CHECK(ours >= 0);
	scene_write("theirs", "theirs");
	fd = open(scene_path("theirs"), O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	CHECK_EQUAL(dup2(fd, ours), ours);
	close(fd);
	return ours;
}

/* The file is the application's: nobody writes it, locks it, or closes it, in a child neither. */
TEST(replaced)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int theirs, other;
	pid_t child;

	set_quota(1, GIB);
	cuda_start(0);
	give(take(1));
	theirs = replace_descriptor();
	assert_kept();
	child = fork();
	if (child == 0) {
		file_is(theirs, "theirs");
		exit(0);
	}
	expect_ended(child);
	assert_kept();
	other = open(scene_path("theirs"), O_RDWR | O_CLOEXEC);
	CHECK_EQUAL(fcntl(other, 36 /* F_OFD_GETLK */, &lock), 0);
	CHECK_EQUAL(lock.l_type, F_UNLCK);
	file_is(theirs, "theirs");
	CHECK_SOON_EQUAL(ledger_reap(), 1);
}

/* Who cannot ask whether a neighbour lives takes it for alive. */
TEST(neighbours_live)
{
	struct member other;

	set_quota(2, 400 * MIB);
	other = member_start(use);
	member_ask(&other, 1);
	cuda_start(0);
	give(take(1));
	replace_descriptor();
	refused(300 * MIB);
	give(take(90 * MIB));
	close_all(3);
	refused(300 * MIB);
	give(take(90 * MIB));
	CHECK_SOON_EQUAL(outside_used(0), 2 * OUTSIDE + 300 * MIB);
	CHECK_SOON_EQUAL(ledger_reap(), 2);
	member_kill(&other);
}

/* -- too many ---------------------------------------------------------------------------------- */

#define OPEN_MOST 64

/* Leaves room for that many descriptors more. */
static void leave_room_for(unsigned count)
{
	struct rlimit limit = {OPEN_MOST, OPEN_MOST};
	int last = -1;

	CHECK_EQUAL(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = OPEN_MOST;
	CHECK_EQUAL(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (int fd; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;)
		last = fd;
	CHECK_EQUAL(errno, EMFILE);
	while (count--)
		close(last--);
}

static void raise_limit(void)
{
	struct rlimit limit;

	CHECK_EQUAL(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	CHECK_EQUAL(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static unsigned room; /* for how many */

/* It stays refused in this process, and is not in another. */
static void refused_for_good(void)
{
	CUdeviceptr address;

	leave_room_for(room);
	CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
	raise_limit();
	CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
	CHECK(cuMemAlloc_v2(&address, MIB) != CUDA_SUCCESS);
	role_exec("once", NULL);
}

/* No descriptor for the policy; or one, which the driver takes, and none for the region. */
TEST(none_left_before)
{
	set_quota(1, GIB);
	for (room = 0; room < 2; room++) {
		struct said said = member_listen(refused_for_good);

		if (said.status || lines_in(said.err) != 1)
			fprintf(stderr, "%s", said.err);
		CHECK_EQUAL(said.status, 0);
		CHECK_EQUAL(lines_in(said.err), 1);
		CHECK(strncmp(said.err, "vgpu: ", 6) == 0);
		CHECK(strcasestr(said.err, "too many open files"));
		CHECK_EQUAL(outside_used(0), 0);
	}
}

/* What is open is enough. NVML is not to be had then: the context stays charged as it was guessed.
 */
static void go_on_with_none_left(void)
{
	cuda_start(0);
	leave_room_for(0);
	for (unsigned round = 0; round < 3; round++) {
		CUdeviceptr held = take(500 * MIB);

		refused(600 * MIB);
		give(held);
		raise_limit();
	}
}

TEST(none_left_after)
{
	struct said said;

	set_quota(1, GIB);
	outside_peak_begin(0);
	said = member_listen(go_on_with_none_left);
	fputs(said.err, stderr);
	CHECK_EQUAL(said.status, 0);
	CHECK_EQUAL(strlen(said.err), 0);
	CHECK_AT_MOST(outside_peak(0), CONTEXT + HIDDEN + GIB);
	assert_nobody();
}

/* -- what region/ is being changed for: see CMakeLists.txt --------------------------------------
 */

#define ROUNDS 3

static struct member neighbours[ROUNDS];

static void start_neighbours(void)
{
	set_quota(2, 400 * MIB);
	for (unsigned i = 0; i < ROUNDS; i++)
		neighbours[i] = member_start(use);
}

/* A neighbour dies after this process has lost its descriptor: its share is free at once. */
static void neighbours_die(void)
{
	for (unsigned i = 0; i < ROUNDS; i++) {
		member_ask(&neighbours[i], 1);
		refused(300 * MIB);
		member_kill(&neighbours[i]);
		give(take_soon(300 * MIB));
		assert_alone_with(0);
	}
}

TEST(closed_and_neighbours_die)
{
	start_neighbours();
	cuda_start(0);
	give(take(1));
	close_all(3);
	CHECK_EQUAL(descriptor_of(region_path()), -1);
	neighbours_die();
}

TEST(replaced_and_neighbours_die)
{
	int theirs;

	start_neighbours();
	cuda_start(0);
	give(take(1));
	theirs = replace_descriptor();
	neighbours_die();
	file_is(theirs, "theirs");
}

/* What there is at 0, 1 and 2 when they are not open: nothing. */
struct look {
	int result[3], error[3];
};

static struct look write_to_first_three(void)
{
	struct look look;

	for (int fd = 0; fd < 3; fd++) {
		look.result[fd] = (int)write(fd, "text\n", 5);
		look.error[fd] = errno;
	}
	return look;
}

static void assert_closed(const struct look *look)
{
	for (int fd = 0; fd < 3; fd++) {
		CHECK_EQUAL(look->result[fd], -1);
		CHECK_EQUAL(look->error[fd], EBADF);
	}
}

/* None of what is opened for the library's own use comes in their places, at the start or later. */
TEST(first_three_closed)
{
	int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
	struct look at_start, later;
	CUdeviceptr address = 0;
	CUresult results[2];

	start_neighbours();
	for (int fd = 0; fd < 3; fd++)
		close(fd);
	results[0] = cuInit(0);
	at_start = write_to_first_three();
	cuda_start(0);
	results[1] = cuMemAlloc_v2(&address, 300 * MIB); /* with NVML, from here on */
	later = write_to_first_three();
	dup2(saved, STDERR_FILENO); /* to say what is wrong */
	CHECK_OK(results[0]);
	CHECK_OK(results[1]);
	assert_closed(&at_start);
	assert_closed(&later);
	give(address);
	neighbours_die();
}
