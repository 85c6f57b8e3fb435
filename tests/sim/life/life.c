#include "life.h"

#include <dirent.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- roles ------------------------------------------------------------------------------------- */

char **role_arguments(const char *role, const char *first, const char *second)
{
	static char *arguments[6];

	arguments[0] = (char *)(uintptr_t)harness_program;
	arguments[1] = (char *)(uintptr_t)HARNESS_AS;
	arguments[2] = (char *)(uintptr_t)role;
	arguments[3] = (char *)(uintptr_t)first;
	arguments[4] = (char *)(uintptr_t)second;
	return arguments;
}

_Noreturn void role_exec(const char *role, const char *first)
{
	execv(harness_program, role_arguments(role, first, NULL));
	_exit(127);
}

pid_t role_spawn(const char *role, const char *first, const char *preload)
{
	char **arguments = role_arguments(role, first, NULL);
	char *before = strdup(getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "");
	pid_t pid;

	if (preload)
		env_set("LD_PRELOAD", preload);
	CHECK_EQUAL(posix_spawn(&pid, harness_program, NULL, NULL, arguments, environ), 0);
	env_set("LD_PRELOAD", before);
	free(before);
	return pid;
}

/* -- the board --------------------------------------------------------------------------------- */

#define BOARD_WORDS 64

static uint64_t *board;

void board_open(void)
{
	void *memory = mmap(NULL, BOARD_WORDS * sizeof(*board), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	board = memory;
}

void board_write(unsigned place, uint64_t word)
{
	__atomic_store_n(&board[place], word, __ATOMIC_SEQ_CST);
}

uint64_t board_read(unsigned place)
{
	return __atomic_load_n(&board[place], __ATOMIC_SEQ_CST);
}

void board_wait(unsigned place, uint64_t word)
{
	uint64_t began = now_ms();

	while (board_read(place) != word) {
		CHECK(now_ms() - began < WAIT_S * 1000);
		sleep_ms(1);
	}
}

/* -- the quota --------------------------------------------------------------------------------- */

void set_quota(unsigned processes, uint64_t data_bytes)
{
	char limit[32];

	snprintf(limit, sizeof(limit), "%llu",
		 (unsigned long long)(processes * (CONTEXT + HIDDEN) + data_bytes));
	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
}

CUdeviceptr take_soon(uint64_t bytes)
{
	uint64_t began = now_ms();
	CUdeviceptr address;
	CUresult result;

	while ((result = cuMemAlloc_v2(&address, bytes)) != CUDA_SUCCESS) {
		CHECK_EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(now_ms() - began < SOON_MS);
		sleep_ms(1);
	}
	return address;
}

void assert_alone_with(uint64_t data_bytes)
{
	CHECK_SOON_EQUAL(ledger_reap(), 1);
	CHECK_SOON_EQUAL(outside_used(0), OUTSIDE + data_bytes);
	CHECK_EQUAL(ledger_used(0), CONTEXT + HIDDEN + data_bytes);
}

void assert_nobody(void)
{
	CHECK_SOON_EQUAL(outside_used(0), 0);
	CHECK_SOON_EQUAL(ledger_reap(), 0);
	CHECK_EQUAL(ledger_used(0), 0);
}

bool stop_allocating;

void *allocate_and_free(void *context)
{
	unsigned seed = (unsigned)(uintptr_t)&seed;

	CHECK_OK(cuCtxSetCurrent(context));
	while (!__atomic_load_n(&stop_allocating, __ATOMIC_RELAXED)) {
		uint64_t bytes = 1 + (unsigned)rand_r(&seed) % (8 * MIB);
		CUdeviceptr address = 0;
		CUresult result = cuMemAlloc_v2(&address, bytes);

		if (result == CUDA_SUCCESS)
			give(address);
		else
			CHECK_EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
	}
	return NULL;
}

/* -- descriptors ------------------------------------------------------------------------------- */

/* What the descriptor is of, as /proc has it. */
static const char *file_of(int fd)
{
	static char path[512];
	char link[64];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	path[len < 0 ? 0 : len] = '\0';
	return path;
}

#define OPEN_MOST 1024

/* What is open, the directory of it left out. */
static unsigned list_open(int numbers[OPEN_MOST])
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	unsigned count = 0;

	CHECK(dir);
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(dir)) {
			CHECK(count < OPEN_MOST);
			numbers[count++] = atoi(entry->d_name);
		}
	closedir(dir);
	return count;
}

void close_all(int first)
{
	int numbers[OPEN_MOST];
	unsigned count = list_open(numbers);

	for (unsigned i = 0; i < count; i++) {
		const char *file = file_of(numbers[i]);

		if (numbers[i] >= first && strncmp(file, "socket:", 7) != 0 &&
		    strncmp(file, "/memfd:departure", 16) != 0 &&
		    strcmp(file, getenv("VGPU_SIM_STATE")) != 0)
			close(numbers[i]);
	}
}

int descriptor_of(const char *path)
{
	int numbers[OPEN_MOST];
	unsigned count = list_open(numbers);

	for (unsigned i = 0; i < count; i++)
		if (!strcmp(file_of(numbers[i]), path))
			return numbers[i];
	return -1;
}
