/* The file of a gang of several slices: what is accepted, who has an entry, who lives. */
#include "gang_file.h"

#include "region_fixture.h"

static struct gang_file ours, theirs;

static void opens(struct gang_file *file)
{
	struct fault fault = {""};

	if (gang_file_open(here.path, file, &fault) != 0)
		fail_msg("%s", fault.text);
}

static void refuses(const char *path, int error, const char *words)
{
	struct fault fault = {""};

	assert_int_equal(gang_file_open(path, &ours, &fault), error);
	if (!strstr(fault.text, words))
		fail_msg("%s: not \"%s\"", fault.text, words);
	if (!strstr(fault.text, path))
		fail_msg("%s: not \"%s\"", fault.text, path);
	assert_null(ours.file);
	assert_int_equal(ours.shared.fd, -1);
}

static unsigned claims(struct gang_file *file, uint32_t *ret_owner)
{
	struct fault fault = {""};
	int entry = gang_file_claim(file, ret_owner, &fault);

	if (entry < 0)
		fail_msg("%s", fault.text);
	file->file->gang.member[entry].owner = *ret_owner;
	return (unsigned)entry;
}

static void write_file(const char *path, const void *bytes, size_t len, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), len);
	fchmod(fd, mode);
	close(fd);
}

UNIT_TEST(test_made)
{
	struct stat st;

	umask(0);
	opens(&ours);
	assert_int_equal(stat(here.path, &st), 0);
	assert_int_equal(st.st_size, sizeof(struct vgpu_gang_file));
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(ours.file->magic, VGPU_GANG_MAGIC);
	assert_int_equal(ours.file->size, st.st_size);
	ours.file->gang.group.used_ns = 17;
	opens(&theirs);
	assert_int_equal(theirs.file->gang.group.used_ns, 17);
	assert_int_equal(gang_file_number(&ours), gang_file_number(&theirs));
	gang_file_forget(&ours);
	gang_file_forget(&theirs);
}

/* A process that was killed while it made the file. */
UNIT_TEST(test_half_made)
{
	static char bytes[sizeof(struct vgpu_gang_file)];

	for (size_t len = 0; len <= sizeof(bytes); len += sizeof(bytes) / 2) {
		write_file(here.path, bytes, len, 0600);
		opens(&ours);
		assert_int_equal(ours.file->magic, VGPU_GANG_MAGIC);
		gang_file_forget(&ours);
	}
	bytes[8] = 1; /* all but the magic was stored */
	write_file(here.path, bytes, sizeof(bytes), 0600);
	opens(&ours);
	assert_int_equal(ours.file->version, VGPU_GANG_VERSION);
	gang_file_forget(&ours);
	bytes[200] = 1;
	write_file(here.path, bytes, sizeof(bytes), 0600);
	refuses(here.path, -EINVAL, "holds something else");
}

UNIT_TEST(test_refused)
{
	struct vgpu_gang_file other = {
		.magic = VGPU_GANG_MAGIC, .version = VGPU_GANG_VERSION + 1, .size = sizeof(other)};
	char path[128];

	snprintf(path, sizeof(path), "%s/missing/gang", here.dir);
	refuses(path, -ENOENT, "its directory is not there; make or mount it, or set VGPU_GANGS");
	write_file(here.path, "something", 9, 0600);
	refuses(here.path, -EINVAL, "holds something else; remove it");
	write_file(here.path, &other, sizeof(other), 0600);
	refuses(here.path, -EINVAL, "another version made it");
	write_file(here.path, &other, sizeof(other) / 2, 0600);
	refuses(here.path, -EINVAL, "holds something else");
	write_file(here.path, "", 0, 0620);
	refuses(here.path, -EPERM, "others may write the gang");
	chmod(here.path, 0602);
	refuses(here.path, -EPERM, "chmod it to 0600");
	chmod(here.path, 0644);
	opens(&ours);
	gang_file_forget(&ours);
	snprintf(path, sizeof(path), "%s/again", here.dir);
	assert_int_equal(link(here.path, path), 0);
	refuses(here.path, -EINVAL, "it has another name besides");
	unlink(path);
	assert_int_equal(symlink(here.path, path), 0);
	refuses(path, -ELOOP, "it is a symbolic link");
	unlink(path);
	unlink(here.path);
	mkdir(here.path, 0700);
	refuses(here.path, -EISDIR, "it is a directory");
}

/* Another user's file, where this test may make one. */
UNIT_TEST(test_other_user)
{
	opens(&ours);
	gang_file_forget(&ours);
	if (geteuid() != 0)
		skip();
	assert_int_equal(chown(here.path, 12345, 12345), 0);
	refuses(here.path, -EPERM, "is user 12345's, and this program runs as user 0: remove it");
}

UNIT_TEST(test_entries)
{
	uint32_t first, second, third, again;

	opens(&ours);
	opens(&theirs); /* another open file, as another process has */
	assert_int_equal(claims(&ours, &first), 0);
	assert_int_equal(claims(&theirs, &second), 1);
	assert_int_equal(claims(&ours, &third), 2);
	for (int i = 0; i < 2; i++) {
		struct gang_file *file = i ? &theirs : &ours;

		assert_true(gang_file_lives(file, first));
		assert_true(gang_file_lives(file, second));
		assert_true(gang_file_lives(file, third));
		assert_false(gang_file_lives(file, 4));
		assert_false(gang_file_lives(file, 0));
		assert_false(gang_file_lives(file, UINT32_MAX));
	}
	gang_file_release(&ours, 0);
	assert_false(gang_file_lives(&theirs, first));
	assert_int_equal(claims(&theirs, &again), 0);
	assert_int_not_equal(again, first);
	assert_true(gang_file_lives(&ours, again));
	gang_file_forget(&theirs); /* it is dead */
	assert_false(gang_file_lives(&ours, second));
	assert_false(gang_file_lives(&ours, again));
	assert_true(gang_file_lives(&ours, third));
	gang_file_forget(&ours);
}

/* A killed process's entries are free at once, also where a child of it holds on to nothing. */
UNIT_TEST(test_killed)
{
	uint32_t *owner =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child;

	opens(&ours);
	child = fork();
	if (child == 0) {
		gang_file_forget(&ours);
		opens(&ours);
		claims(&ours, &owner[0]);
		__atomic_store_n(&owner[1], 1, __ATOMIC_RELEASE);
		pause();
		_exit(0);
	}
	while (!__atomic_load_n(&owner[1], __ATOMIC_ACQUIRE))
		usleep(1000);
	assert_true(gang_file_lives(&ours, owner[0]));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	assert_false(gang_file_lives(&ours, owner[0]));
	gang_file_forget(&ours);
	munmap(owner, 4096);
}

UNIT_TEST(test_full)
{
	struct fault fault = {""};
	uint32_t owner;

	opens(&ours);
	opens(&theirs);
	for (unsigned i = 0; i < VGPU_GANG_MEMBERS_MAX; i++)
		assert_int_equal(claims(i % 2 ? &ours : &theirs, &owner), i);
	assert_int_equal(gang_file_claim(&ours, &owner, &fault), -ENOSPC);
	assert_non_null(strstr(fault.text, "is full: it has 28 members at most"));
	gang_file_forget(&theirs);
	assert_int_equal(claims(&ours, &owner), 0);
	gang_file_forget(&ours);
}

UNIT_TEST(test_watched)
{
	struct fault fault = {""};
	uint32_t owner;

	opens(&ours);
	assert_int_equal(gang_file_watch(&ours), 0);
	close(ours.shared.fd); /* as a program does that closes all it finds */
	assert_true(gang_file_lives(&ours, 1));
	assert_int_equal(gang_file_watch(&ours), 0);
	claims(&ours, &owner);
	unlink(here.path);
	assert_int_equal(gang_file_watch(&ours), -ESTALE);
	assert_int_equal(gang_file_claim(&ours, &owner, &fault), -ESTALE);
	opens(&theirs);
	assert_int_equal(gang_file_watch(&ours), -ESTALE);
	assert_int_not_equal(gang_file_number(&ours), gang_file_number(&theirs));
	gang_file_forget(&ours);
	assert_int_equal(truncate(here.path, 0), 0);
	assert_int_equal(gang_file_watch(&theirs), -EUCLEAN);
	assert_int_equal(theirs.file->magic, 0); /* and no SIGBUS */
	assert_int_equal(gang_file_watch(&theirs), -EUCLEAN);
	gang_file_forget(&theirs);
}

UNIT_TEST(test_swept)
{
	struct fault fault = {""};
	uint32_t owner;

	opens(&ours);
	claims(&ours, &owner);
	gang_file_sweep(here.path);
	assert_int_equal(access(here.path, F_OK), 0);
	gang_file_release(&ours, 0);
	gang_file_sweep(here.path);
	assert_int_equal(access(here.path, F_OK), -1);
	assert_int_equal(gang_file_claim(&ours, &owner, &fault), -ESTALE);
	gang_file_forget(&ours);
	write_file(here.path, "something", 9, 0600);
	gang_file_sweep(here.path);
	assert_int_equal(access(here.path, F_OK), 0);
	gang_file_sweep(here.dir);
	gang_file_sweep("/nowhere/at/all");
}

/* Many processes that open and join at once: each finds it whole, and has an entry of its own. */
UNIT_TEST(test_race)
{
	enum { MANY = 12 };

	for (int round = 0; round < 5; round++) {
		uint32_t taken = 0, owner;
		int status, ready[2];
		pid_t children[MANY];

		unlink(here.path);
		assert_int_equal(pipe(ready), 0);
		for (int i = 0; i < MANY; i++) {
			children[i] = fork();
			if (children[i] != 0)
				continue;
			opens(&ours);
			status = (int)claims(&ours, &owner);
			write(ready[1], &status, sizeof(status));
			pause();
			_exit(1);
		}
		for (int i = 0; i < MANY; i++) {
			assert_int_equal(read(ready[0], &status, sizeof(status)), sizeof(status));
			assert_false(taken >> status & 1);
			taken |= 1u << status;
		}
		for (int i = 0; i < MANY; i++) {
			kill(children[i], SIGKILL);
			waitpid(children[i], &status, 0);
		}
		close(ready[0]);
		close(ready[1]);
	}
}
