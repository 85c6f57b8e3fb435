#include "faulty.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *stderr_path;

void faulty_stderr(const char *path)
{
	stderr_path = path;
}

static void redirect_stderr(void)
{
	int fd = open(stderr_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(fd >= 0 && dup2(fd, STDERR_FILENO) == STDERR_FILENO);
}

static struct plan_report *make_report(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	void *memory;

	CHECK(fd >= 0);
	CHECK(ftruncate(fd, sizeof(struct plan_report)) == 0);
	memory = mmap(NULL, sizeof(struct plan_report), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(memory != MAP_FAILED);
	close(fd);
	return memory;
}

_Noreturn static void become(const char *role, const char *step, const char *fault,
			     const char *report, int wire)
{
	char number[16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CHECK(fcntl(wire, F_SETFD, 0) == 0);
	if (stderr_path)
		redirect_stderr();
	snprintf(number, sizeof(number), "%d", wire);
	env_set("LD_PRELOAD", getenv("VGPU_FAULTY"));
	env_set("VGPU_TEST_STEP", step);
	env_set("VGPU_TEST_SYSCALL", fault);
	env_set("VGPU_TEST_REPORT", report);
	role_exec(role, number);
}

struct faulty faulty_start(const char *role, const char *step, const char *fault)
{
	static unsigned turn;
	struct faulty program;
	char name[32];
	const char *path;
	int wires[2];

	snprintf(name, sizeof(name), "report-%d-%u", getpid(), turn++);
	path = scene_path(name);
	program.report = make_report(path);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wires) == 0);
	fflush(NULL);
	program.member.pid = fork();
	CHECK(program.member.pid >= 0);
	if (program.member.pid == 0)
		become(role, step, fault, path, wires[1]);
	close(wires[1]);
	program.member.wire = wires[0];
	program.member.departure = -1; /* it becomes another program */
	return program;
}

int faulty_wait(struct faulty *program)
{
	return member_wait(&program->member);
}

void faulty_close(struct faulty *program)
{
	munmap(program->report, sizeof(*program->report));
	program->report = NULL;
}

bool faulty_hear(const struct faulty *program, int ms, uint64_t *ret_word, bool *ret_over)
{
	struct pollfd ready = {.fd = program->member.wire, .events = POLLIN};
	ssize_t len;
	int count = poll(&ready, 1, ms);

	*ret_over = false;
	CHECK(count >= 0 || errno == EINTR);
	if (count <= 0)
		return false;
	len = read(program->member.wire, ret_word, sizeof(*ret_word));
	*ret_over = len != sizeof(*ret_word);
	return !*ret_over;
}

/* -- places ------------------------------------------------------------------------------------ */

void place_limit(uint64_t bytes)
{
	char limit[32];

	snprintf(limit, sizeof(limit), "%llu", (unsigned long long)bytes);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
}

void place_set(uint64_t quota)
{
	char name[32];

	snprintf(name, sizeof(name), "region-%d", getpid());
	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", scene_path(name));
	snprintf(name, sizeof(name), "machine-%d", getpid());
	env_set("VGPU_SIM_STATE", scene_path(name));
	place_limit(quota);
}

static void have_all(int wire)
{
	uint64_t quota = hear(wire);

	cuda_start(0);
	give(take(1));
	give(take(quota - CHARGE));
	CHECK_EQUAL(ledger_used(0), CHARGE);
}

void place_check_whole(uint64_t quota)
{
	struct member next;

	CHECK_SOON_EQUAL(outside_used(0), 0);
	next = member_start(have_all);
	tell(next.wire, quota);
	member_end(&next);
	assert_nobody();
}

/* -- words ------------------------------------------------------------------------------------- */

void *memory_share(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	return memory;
}

uint64_t word_read(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

void word_write(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

uint64_t word_add(uint64_t *word, uint64_t more)
{
	return __atomic_add_fetch(word, more, __ATOMIC_SEQ_CST);
}

void word_raise(uint64_t *word, uint64_t to)
{
	uint64_t seen = word_read(word);

	while (seen < to && !__atomic_compare_exchange_n(word, &seen, to, false, __ATOMIC_SEQ_CST,
							 __ATOMIC_SEQ_CST))
		;
}

void word_await(const uint64_t *word, uint64_t least, const char *what)
{
	uint64_t began = now_ms();

	while (word_read(word) < least) {
		if (now_ms() - began > WAIT_S * 1000)
			check_failed(__FILE__, __LINE__, what);
		usleep(200);
	}
}
