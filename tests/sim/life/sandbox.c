/*
 * Sandboxes: system calls that a seccomp filter denies, at the start or later, and a root directory
 * where nothing of the slice is. Either the quota is kept without them, or CUDA is refused.
 *
 * A filter that hits every call of a kind hits the driver first. So these are aimed: libvgpu.so
 * makes its system calls through syscall(2), the simulated driver through the functions of their
 * names, and a filter sees where the call comes from. What each test needs first is that its filter
 * bites.
 */
#include "life.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

/* -- filters ----------------------------------------------------------------------------------- */

#define ANY_COMMAND (-1)

struct denial {
	const char *name;
	long number;
	int command; /* the second argument, or ANY_COMMAND */
	bool needed_at_start;
};

static const struct denial denials[] = {
	{"F_OFD_SETLK", SYS_fcntl, F_OFD_SETLK, true},
	{"F_OFD_GETLK", SYS_fcntl, F_OFD_GETLK, false},
	{"futex", SYS_futex, ANY_COMMAND, false},
	{"openat", SYS_openat, ANY_COMMAND, true},
	{"fstat", SYS_fstat, ANY_COMMAND, true},
	{"mmap", SYS_mmap, ANY_COMMAND, true},
};

#define DENIALS (sizeof(denials) / sizeof(*denials))

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)(field))
#define FIELD(name) offsetof(struct seccomp_data, name)
/* Goes on where the word fits, and else skips so many. */
#define EXPECT(word, otherwise) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(word), 0, otherwise)
#define EXPECT_AT_LEAST(word, otherwise) \
	BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (unsigned)(word), 0, otherwise)
#define RETURN(verdict) BPF_STMT(BPF_RET | BPF_K, (unsigned)(verdict))

static void install(struct sock_filter *filter, size_t count)
{
	struct sock_fprog program = {.len = (unsigned short)count, .filter = filter};

	CHECK_EQUAL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_EQUAL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* Where syscall(2) is: its instructions have one low half each, as it does not cross 4 GiB. */
static void find_syscall(uint64_t *ret_start, uint64_t *ret_end)
{
	const ElfW(Sym) *symbol = NULL;
	Dl_info info;
	void *function = dlsym(RTLD_DEFAULT, "syscall");

	CHECK(function);
	CHECK(dladdr1(function, &info, (void **)(uintptr_t)&symbol, RTLD_DL_SYMENT));
	CHECK(symbol && symbol->st_size);
	*ret_start = (uintptr_t)function;
	*ret_end = *ret_start + symbol->st_size;
	CHECK_EQUAL(*ret_start >> 32, *ret_end >> 32);
}

/* From here on, the call fails where it comes from syscall(2). */
static void deny(const struct denial *denial, int error)
{
	uint64_t start, end;

	find_syscall(&start, &end);
	struct sock_filter filter[] = {
		LOAD(FIELD(nr)),
		EXPECT(denial->number, 8),
		LOAD(FIELD(instruction_pointer) + 4),
		EXPECT(start >> 32, 6),
		LOAD(FIELD(instruction_pointer)),
		EXPECT_AT_LEAST(start, 4),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, (unsigned)end, 3, 0),
		LOAD(FIELD(args[1])),
		denial->command == ANY_COMMAND ? (struct sock_filter)EXPECT_AT_LEAST(0, 1)
					       : (struct sock_filter)EXPECT(denial->command, 1),
		RETURN(SECCOMP_RET_ERRNO | (unsigned)error),
		RETURN(SECCOMP_RET_ALLOW),
	};
	install(filter, sizeof(filter) / sizeof(*filter));
	errno = 0;
	CHECK_EQUAL(syscall(denial->number, -1, denial->command, 0, 0, 0, 0), -1);
	CHECK_EQUAL(errno, error);
}

/* The call kills, whoever makes it. */
static void kill_on(long number)
{
	struct sock_filter filter[] = {
		LOAD(FIELD(nr)),
		EXPECT(number, 1),
		RETURN(SECCOMP_RET_KILL_PROCESS),
		RETURN(SECCOMP_RET_ALLOW),
	};

	install(filter, sizeof(filter) / sizeof(*filter));
}

/* The call fails, whoever makes it. */
static void deny_all(long number, int error)
{
	struct sock_filter filter[] = {
		LOAD(FIELD(nr)),
		EXPECT(number, 1),
		RETURN(SECCOMP_RET_ERRNO | (unsigned)error),
		RETURN(SECCOMP_RET_ALLOW),
	};

	install(filter, sizeof(filter) / sizeof(*filter));
}

/* -- denied ------------------------------------------------------------------------------------ */

static const struct denial *denied;
static int denied_error;

/* Small and big, up to the quota and not beyond. */
static void fill_and_empty(void)
{
	CUdeviceptr small[32], big[16];
	unsigned count;

	for (unsigned i = 0; i < 32; i++)
		small[i] = take(1000);
	count = fill(big, 16, 100 * MIB);
	CHECK_EQUAL(count, 4);
	CHECK_AT_MOST(outside_of(0, getpid()), CONTEXT + 430 * MIB);
	while (count)
		give(big[--count]);
	for (unsigned i = 0; i < 32; i++)
		give(small[i]);
}

static void start_denied(void)
{
	CUcontext context;
	CUdeviceptr address = UNTOUCHED;

	deny(denied, denied_error);
	if (!denied->needed_at_start) {
		cuda_start(0);
		fill_and_empty();
		return;
	}
	for (unsigned round = 0; round < 2; round++) {
		CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
		CHECK(cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS);
		CHECK(cuMemAlloc_v2(&address, MIB) != CUDA_SUCCESS);
		CHECK_EQUAL(address, UNTOUCHED);
	}
}

static void go_on_denied(void)
{
	alarm(WAIT_S);
	cuda_start(0);
	fill_and_empty();
	deny(denied, denied_error);
	for (unsigned round = 0; round < 3; round++) {
		fill_and_empty();
		sleep_ms(5); /* the books are compared again */
	}
}

/* It is said once why CUDA is refused, or nothing at all. */
static void assert_said(const struct said *said, bool refused)
{
	if (said->status || lines_in(said->err) != refused)
		fprintf(stderr, "%s, error %d: status %#x: %s\n", denied->name, denied_error,
			(unsigned)said->status, said->err);
	CHECK_EQUAL(said->status, 0);
	CHECK_EQUAL(lines_in(said->err), refused);
	CHECK(!refused || strncmp(said->err, "vgpu: ", 6) == 0);
	CHECK_EQUAL(outside_used(0), 0);
}

static void with_each_denied(void (*body)(void), bool at_start)
{
	static const int errors[] = {EPERM, ENOSYS};

	set_quota(1, 430 * MIB);
	for (size_t i = 0; i < 2 * DENIALS; i++) {
		struct said said;
		char region[32];

		denied = &denials[i / 2];
		denied_error = errors[i % 2];
		/* Of their own: where the dead cannot be told, they count for the next. */
		snprintf(region, sizeof(region), "region-%zu", i);
		env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", scene_path(region));
		said = member_listen(body);
		assert_said(&said, at_start && denied->needed_at_start);
	}
}

TEST(denied_at_start)
{
	with_each_denied(start_denied, true);
}

TEST(denied_later)
{
	with_each_denied(go_on_denied, false);
}

#define PIECES 100

/* Without memory for its tables the library refuses; what it has handed out stays in the books. */
TEST(tables_cannot_grow)
{
	CUdeviceptr held[PIECES];
	unsigned count = 0;

	set_quota(1, 430 * MIB);
	cuda_start(0);
	give(take(4 * MIB));
	denied = &denials[DENIALS - 1];
	deny(denied, EPERM);
	while (count < PIECES && cuMemAlloc_v2(&held[count], 4 * MIB) == CUDA_SUCCESS)
		count++;
	CHECK(count > 10 && count < PIECES);
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT + count * 4 * MIB);
	refused(4 * MIB);
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT + count * 4 * MIB);
	while (count)
		give(held[--count]);
	give(take(400 * MIB));
	refused(440 * MIB);
	CHECK_EQUAL(ledger_used(0), CONTEXT + HIDDEN);
}

static void contend(int wire)
{
	hear(wire);
	allocate_and_free(cuda_start(0));
}

/* Without futex, whoever finds the lock taken asks again at once, rather than sleep. */
TEST(contended_without_futex)
{
	struct member members[2];
	CUdeviceptr held;

	set_quota(3, 600 * MIB);
	for (unsigned i = 0; i < 2; i++)
		members[i] = member_start(contend);
	cuda_start(0);
	give(take(1));
	for (unsigned i = 0; i < 2; i++)
		tell(members[i].wire, 1);
	denied = &denials[2];
	deny(denied, EPERM);
	for (unsigned round = 0; round < 300; round++) {
		held = take(500 * MIB);
		give(held);
	}
	for (unsigned i = 0; i < 2; i++)
		member_kill(&members[i]);
	give(take_soon(600 * MIB));
	assert_alone_with(0);
}

/* -- files that must not be opened --------------------------------------------------------------
 */

/* No files after cuInit: NVML cannot be loaded, and the context is charged as it was guessed. */
TEST(no_files_after_init)
{
	CUdeviceptr held;

	set_quota(1, GIB);
	CHECK_OK(cuInit(0));
	ledger();
	deny_all(SYS_openat, EACCES);
	cuda_start(0);
	held = take(400 * MIB);
	refused(GIB);
	give(held);
	CHECK_AT_MOST(ledger_used(0), CONTEXT + HIDDEN + GIB);
	CHECK_AT_MOST(CONTEXT, ledger_own(0).context);
}

static void strict_too_early(void)
{
	CHECK_OK(cuInit(0));
	kill_on(SYS_openat);
	cuda_start(0);
	take(100 * MIB);
	_exit(1); /* NVML is loaded at the first allocation at the latest */
}

static void strict_later(void)
{
	cuda_start(0);
	give(take(1));
	outside_used(0); /* who looks from outside is a process of its own, started here */
	kill_on(SYS_openat);
	for (unsigned round = 0; round < 3; round++) {
		fill_and_empty();
		sleep_ms(25);
	}
	_exit(0);
}

/* A program that is killed for opening a file: after its first allocation none is opened. */
TEST(killed_on_open)
{
	struct said said;

	set_quota(1, 430 * MIB);
	said = member_listen(strict_too_early);
	CHECK(WIFSIGNALED(said.status) && WTERMSIG(said.status) == SIGSYS);
	assert_nobody();
	said = member_listen(strict_later);
	fputs(said.err, stderr);
	CHECK_EQUAL(said.status, 0);
	assert_nobody();
}

/* -- roots ------------------------------------------------------------------------------------- */

/* A root with the machine in it, at its place, and nothing else of this scene. */
static void make_root(void)
{
	char path[256];

	if (geteuid() != 0)
		SKIP("chroot needs root");
	scene_write("machine", "");
	snprintf(path, sizeof(path), "root");
	CHECK_EQUAL(mkdir(scene_path("root"), 0755), 0);
	CHECK_EQUAL(mkdir(scene_path("root/tmp"), 0755), 0);
	snprintf(path, sizeof(path), "root%s", scene_dir);
	CHECK_EQUAL(mkdir(scene_path(path), 0755), 0);
	snprintf(path, sizeof(path), "root%s/machine", scene_dir);
	CHECK_EQUAL(link(scene_path("machine"), scene_path(path)), 0);
	CHECK_EQUAL(mkdir(scene_path("slice"), 0777), 0);
	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", scene_path("slice/its.cache"));
}

static void enter_root(void)
{
	CHECK_EQUAL(chroot(scene_path("root")), 0);
	CHECK_EQUAL(chdir("/"), 0);
}

static void start_in_root(void)
{
	CUdeviceptr address;

	enter_root();
	CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
	CHECK(cuMemAlloc_v2(&address, MIB) != CUDA_SUCCESS);
}

static void assert_refused_in_root(const char *what)
{
	struct said said = member_listen(start_in_root);

	if (said.status || !strstr(said.err, what))
		fprintf(stderr, "%s", said.err);
	CHECK_EQUAL(said.status, 0);
	CHECK_EQUAL(lines_in(said.err), 1);
	CHECK(strncmp(said.err, "vgpu: ", 6) == 0);
	CHECK(strstr(said.err, what));
	CHECK_EQUAL(outside_used(0), 0);
}

/* The region's path, or the policy's, leads nowhere there. */
TEST(root_before)
{
	make_root();
	set_quota(1, GIB);
	assert_refused_in_root("slice/its.cache");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", NULL);
	policy_write(gpu_uuid(0), "memory = 1G\n");
	assert_refused_in_root("VGPU_POLICY");
}

static void go_on_in_root(int wire)
{
	CHECK_OK(cuInit(0));
	enter_root();
	cuda_start(0);
	take(400 * MIB);
	refused(500 * MIB);
	say_ready(wire);
	give(take_soon(500 * MIB)); /* the neighbour is dead */
	say_ready(wire);
}

static void neighbour(int wire)
{
	cuda_start(0);
	take(300 * MIB);
	say_ready(wire);
}

/* After cuInit all that is needed is open; NVML is not there, and the context stays a guess. */
TEST(root_after)
{
	struct member other, member;

	make_root();
	set_quota(2, 1500 * MIB);
	other = member_begin(neighbour);
	set_quota(2, 800 * MIB);
	member = member_begin(go_on_in_root);
	CHECK_EQUAL(outside_of(0, member.pid), CONTEXT + 400 * MIB);
	member_kill(&other);
	member_ask(&member, 1);
	CHECK_SOON_EQUAL(ledger_reap(), 1);
	member_kill(&member);
	assert_nobody();
}
