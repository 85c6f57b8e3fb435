/* The file of turns: which files are accepted, seats, and the dead; and processes that take turns.
 */
#include "turn_file.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "turn_world.h"

static struct turn_file ours, theirs;

static void opens(struct turn_file *file)
{
	struct fault fault = {""};

	if (turn_file_open(here.path, file, &fault) != 0)
		fail_msg("%s", fault.text);
}

static bool joins(struct turn_file *file, uint64_t key)
{
	struct fault fault = {""};
	bool first = false;

	if (turn_file_join(file, key, &first, &fault) != 0)
		fail_msg("%s", fault.text);
	return first;
}

static void refuses(const char *path, int error, const char *words)
{
	struct fault fault = {""};

	assert_int_equal(turn_file_open(path, &ours, &fault), error);
	if (!strstr(fault.text, words) || !strstr(fault.text, path))
		fail_msg("%s: not \"%s\"", fault.text, words);
	assert_null(ours.file);
	assert_int_equal(ours.shared.fd, -1);
}

static void write_file(const char *path, const void *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), len);
	close(fd);
}

UNIT_TEST(test_made)
{
	struct stat st;

	umask(077);
	opens(&ours);
	assert_int_equal(stat(here.path, &st), 0);
	assert_int_equal(st.st_size, sizeof(struct vgpu_turns_file));
	assert_int_equal(st.st_blocks * 512 >= st.st_size, 1);
	assert_int_equal(st.st_mode & 07777, 0666);
	assert_int_equal(ours.file->header.magic, VGPU_TURNS_MAGIC);
	assert_int_equal(ours.file->header.size, st.st_size);
	ours.file->slice[63].turns = 17;
	opens(&theirs);
	assert_int_equal(theirs.file->slice[63].turns, 17);
	turn_file_forget(&ours);
	turn_file_forget(&theirs);
}

/* A process that was killed while it made the file. */
UNIT_TEST(test_half_made)
{
	static char bytes[sizeof(struct vgpu_turns_file)];

	for (size_t len = 0; len <= sizeof(bytes); len += sizeof(bytes) / 3) {
		write_file(here.path, bytes, len);
		opens(&ours);
		assert_int_equal(ours.file->header.magic, VGPU_TURNS_MAGIC);
		turn_file_forget(&ours);
	}
	bytes[8] = 1; /* all but the magic was stored */
	write_file(here.path, bytes, sizeof(bytes));
	opens(&ours);
	assert_int_equal(ours.file->header.version, VGPU_TURNS_VERSION);
	turn_file_forget(&ours);
}

UNIT_TEST(test_refused)
{
	static struct vgpu_turns_file other = {.header = {.magic = VGPU_TURNS_MAGIC,
							  .version = VGPU_TURNS_VERSION + 1,
							  .size = sizeof(other)}};
	char path[128];

	snprintf(path, sizeof(path), "%s/missing/gpu", here.dir);
	refuses(path, -ENOENT, "its directory is not there; make it or mount it");
	write_file(here.path, "something", 9);
	refuses(here.path, -EINVAL, "holds something else; remove it");
	write_file(here.path, &other, sizeof(other));
	refuses(here.path, -EINVAL, "another version made it");
	write_file(here.path, &other, sizeof(other) / 2);
	refuses(here.path, -EINVAL, "holds something else");
	snprintf(path, sizeof(path), "%s/again", here.dir);
	unlink(here.path);
	write_file(here.path, "", 0);
	assert_int_equal(link(here.path, path), 0);
	refuses(here.path, -EINVAL, "it has another name besides");
	unlink(path);
	assert_int_equal(symlink(here.path, path), 0);
	refuses(path, -ELOOP, "it is a symbolic link");
	unlink(path);
	unlink(here.path);
	assert_int_equal(mkfifo(here.path, 0600), 0);
	refuses(here.path, -EINVAL, "it is not a regular file");
	unlink(here.path);
	mkdir(here.path, 0700);
	refuses(here.path, -EISDIR, "it is a directory");
}

/* What a word of the file must not be. */
static void assert_found(void *word, size_t size, uint64_t wrong)
{
	uint64_t right = 0;

	memcpy(&right, word, size);
	memcpy(word, &wrong, size);
	assert_false(turn_file_is_valid(&ours));
	memcpy(word, &right, size);
	assert_true(turn_file_is_valid(&ours));
}

UNIT_TEST(test_validity)
{
	struct vgpu_turns_file *file;
	unsigned seat;

	memset(&ours, 0, sizeof(ours));
	assert_false(turn_file_is_valid(&ours)); /* not open */
	opens(&ours);
	opens(&theirs);
	assert_true(turn_file_is_valid(&ours));
	joins(&ours, 100);
	joins(&theirs, 200);
	file = ours.file;
	seat = theirs.seat;
	assert_true(turn_file_is_valid(&ours));
	assert_found(&file->header.magic, 8, VGPU_TURNS_MAGIC + 1);
	assert_found(&file->header.version, 4, VGPU_TURNS_VERSION + 1);
	assert_found(&file->header.size, 4, 4096);
	assert_found(&file->header.made, 4, 0);
	assert_found(&file->header.turn, 8, VGPU_TURNS_SLICES + 1);
	assert_found(&file->slice[1].key, 8, 0);
	assert_found(&file->slice[1].key, 8, 100); /* the other slice's */
	assert_found(&file->slice[1].words, 8, 0);
	assert_found(&file->slice[1].seats[seat / 64], 8, 0);
	assert_found(&file->seat[seat].owner, 4, VGPU_TURNS_SLICES + 1);
	assert_found(&file->seat[ours.seat].owner, 4, 0);
	turn_file_forget(&theirs); /* it is dead, with all that it has */
	file->slice[1].words = 0;
	assert_true(turn_file_is_valid(&ours));
	turn_file_leave(&ours);
	assert_true(turn_file_is_valid(&ours));
	turn_file_forget(&ours);
}

UNIT_TEST(test_seats)
{
	struct turn_file third;

	opens(&ours);
	opens(&theirs); /* another open file, as another process has */
	opens(&third);
	assert_true(joins(&ours, 100));
	assert_true(joins(&theirs, 200));
	assert_false(joins(&third, 100));
	assert_int_equal(ours.slice, 0);
	assert_int_equal(theirs.slice, 1);
	assert_int_equal(third.slice, 0);
	assert_int_not_equal(third.seat, ours.seat);
	assert_true(turn_file_slice_lives(&theirs, 0));
	assert_true(turn_file_slice_lives(&theirs, 1));
	assert_false(turn_file_slice_lives(&theirs, 2));
	assert_false(turn_file_slice_lives(&theirs, VGPU_TURNS_SLICES));
	assert_true(turn_file_seat_lives(&theirs, 0, ours.seat));
	assert_false(turn_file_seat_lives(&theirs, 1, ours.seat));
	assert_false(turn_file_seat_lives(&theirs, 0, VGPU_TURNS_SEATS));
	turn_file_leave(&third);
	assert_true(turn_file_slice_lives(&theirs, 0));
	turn_file_forget(&ours); /* it is dead */
	assert_false(turn_file_slice_lives(&theirs, 0));
	assert_true(joins(&third, 100)); /* the entry is found again */
	assert_int_equal(third.slice, 0);
	turn_file_forget(&third);
	turn_file_forget(&theirs);
}

/* As many slices and processes as there may be; then the entries of the dead are taken. */
UNIT_TEST(test_full)
{
	static struct turn_file file[VGPU_TURNS_SLICES + 1];
	struct fault fault = {""};
	bool first;

	for (unsigned i = 0; i < VGPU_TURNS_SLICES; i++) {
		opens(&file[i]);
		assert_true(joins(&file[i], 1000 + i));
		assert_int_equal(file[i].slice, i);
	}
	opens(&ours);
	assert_int_equal(turn_file_join(&ours, 1, &first, &fault), -ENOSPC);
	assert_non_null(strstr(fault.text, "are full: 64 slices use the GPU"));
	turn_file_forget(&file[40]);
	assert_true(joins(&ours, 1));
	assert_int_equal(ours.slice, 40);
	turn_file_leave(&ours);
	for (unsigned s = 0; s < VGPU_TURNS_SEATS; s++)
		ours.file->seat[s].owner = 1 + s % VGPU_TURNS_SLICES; /* as the dead leave them */
	assert_true(joins(&ours, 2));
	assert_int_equal(ours.file->seat[ours.seat].owner & VGPU_TURNS_HOLDER, 41);
	turn_file_forget(&ours);
	for (unsigned i = 0; i < VGPU_TURNS_SLICES; i++)
		if (i != 40)
			turn_file_forget(&file[i]);
}

/* 4,000 processes, or as many as this one may have files open. */
UNIT_TEST(test_many)
{
	static struct turn_file file[4000];
	struct rlimit limit;
	unsigned count = 4000;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur < count + 100)
		count = (unsigned)limit.rlim_cur - 100;
	for (unsigned i = 0; i < count; i++) {
		opens(&file[i]);
		joins(&file[i], 1 + i % 64);
	}
	for (unsigned i = 0; i < 64; i++)
		assert_true(turn_file_slice_lives(&file[(i + 1) % 64], i));
	for (unsigned i = 0; i < count; i++)
		turn_file_forget(&file[i]);
}

UNIT_TEST(test_watched)
{
	struct fault fault = {""};
	bool first;

	opens(&ours);
	assert_int_equal(turn_file_watch(&ours), 0);
	close(ours.shared.fd); /* as a program does that closes all it finds */
	assert_true(turn_file_slice_lives(&ours, 1));
	assert_int_equal(turn_file_watch(&ours), 0);
	joins(&ours, 7);
	unlink(here.path);
	assert_int_equal(turn_file_watch(&ours), -ESTALE);
	opens(&theirs);
	assert_int_equal(turn_file_watch(&ours), -ESTALE);
	assert_int_equal(turn_file_join(&ours, 7, &first, &fault), -ESTALE);
	turn_file_forget(&ours);
	assert_int_equal(truncate(here.path, 0), 0);
	assert_int_equal(turn_file_watch(&theirs), -EUCLEAN);
	assert_int_equal(theirs.file->header.magic, 0); /* and no SIGBUS */
	turn_file_forget(&theirs);
}

/* A file that is lost: its processes go on without turns. */
UNIT_TEST(test_lost)
{
	struct actor *it = busy(50, 100, MS);

	busy(50, 100, MS);
	go_on(100 * MS);
	assert_true(turn_watch(&it->turn));
	unlink(world_path);
	assert_false(turn_watch(&it->turn));
	assert_int_equal(turn_ask(&it->turn, time_ns).kind, TURN_ALONE);
	turn_submitted(&it->turn, time_ns + MS, time_ns);
	turn_idle(&it->turn, time_ns, time_ns);
}

/* -- processes -------------------------------------------------------------------------------- */

struct shared {
	uint64_t launches[3];
	uint64_t stop;
};

/* One of the processes below. */
static struct {
	struct turn turn;
	struct turn_account account;
	struct shared *shared;
	unsigned number;
	uint64_t busy_ns;
} self;

/* Launches for a GPU that is not there, in real time: kernels of a millisecond. */
static void *launch_on(void *arg)
{
	while (!__atomic_load_n(&self.shared->stop, __ATOMIC_RELAXED)) {
		uint64_t now_ns = clock_steady_ns(), busy_ns;
		struct turn_answer answer = turn_ask(&self.turn, now_ns);

		if (answer.kind == TURN_WAIT) {
			turn_sleep(&self.turn, &answer);
			continue;
		}
		busy_ns = __atomic_load_n(&self.busy_ns, __ATOMIC_RELAXED);
		busy_ns = (busy_ns > now_ns ? busy_ns : now_ns) + MS;
		__atomic_store_n(&self.busy_ns, busy_ns, __ATOMIC_RELAXED);
		turn_submitted(&self.turn, busy_ns, now_ns);
		__atomic_add_fetch(&self.shared->launches[self.number], 1, __ATOMIC_RELAXED);
		while (clock_steady_ns() + MS / 2 < busy_ns)
			usleep(100);
		if (clock_steady_ns() > busy_ns)
			turn_idle(&self.turn, busy_ns, clock_steady_ns());
	}
	return arg;
}

static void take_turns(const char *path, unsigned number, struct shared *shared)
{
	struct turn_slice slice = {
		.key = number + 1, .weight = 50, .limit_pct = 100, .account = &self.account};
	struct fault fault = {""};
	pthread_t other;

	self.shared = shared;
	self.number = number;
	if (turn_join(&self.turn, path, &slice, &fault) != 0)
		_exit(1);
	if (pthread_create(&other, NULL, launch_on, NULL) != 0)
		_exit(2);
	launch_on(NULL);
	pthread_join(other, NULL);
	turn_leave(&self.turn, clock_steady_ns());
	_exit(0);
}

static void wait_for_launches(const struct shared *shared, unsigned number, uint64_t count)
{
	uint64_t from = __atomic_load_n(&shared->launches[number], __ATOMIC_RELAXED);

	for (unsigned i = 0;
	     __atomic_load_n(&shared->launches[number], __ATOMIC_RELAXED) < from + count; i++) {
		assert_true(i < 100000); /* no machine is so busy */
		usleep(1000);
	}
}

UNIT_TEST(test_processes)
{
	struct shared *shared =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t children[3];
	int status;

	for (unsigned i = 0; i < 3; i++) {
		children[i] = fork();
		if (children[i] == 0)
			take_turns(here.path, i, shared);
	}
	for (unsigned i = 0; i < 3; i++)
		wait_for_launches(shared, i, 10);
	kill(children[0], SIGKILL); /* wherever it is */
	waitpid(children[0], &status, 0);
	wait_for_launches(shared, 1, 10);
	wait_for_launches(shared, 2, 10);
	kill(children[1], SIGSTOP);
	usleep(300000);
	kill(children[1], SIGCONT);
	wait_for_launches(shared, 1, 5);
	__atomic_store_n(&shared->stop, 1, __ATOMIC_RELAXED);
	for (unsigned i = 1; i < 3; i++) {
		waitpid(children[i], &status, 0);
		assert_int_equal(status, 0);
	}
	munmap(shared, 4096);
}
