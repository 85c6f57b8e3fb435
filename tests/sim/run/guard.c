/* Looks under guard (src/overview/guard.h): pages that are gone read as zeros, and are reported. */
#include "guard.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define LEN ((size_t)1 << 21)

static volatile unsigned char *map_file(FILE *file)
{
	void *at;

	CHECK(ftruncate(fileno(file), (off_t)LEN) == 0);
	at = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
	CHECK(at != MAP_FAILED);
	memset(at, 7, LEN);
	return at;
}

static unsigned sum(const volatile unsigned char *at)
{
	unsigned sum = 0;

	for (size_t i = 0; i < LEN; i += 512)
		sum += at[i];
	return sum;
}

/* What it costs without a guard: the signal that ends a child that reads. */
static int signal_of_reader(const volatile unsigned char *at)
{
	struct rlimit no_core = {0, 0};
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &no_core);
		_exit(sum(at) == 0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

int main(void)
{
	FILE *file = tmpfile();
	volatile unsigned char *at;

	CHECK(file);
	at = map_file(file);
	guard_begin();
	CHECK(sum(at) == 7 * LEN / 512);
	CHECK(!guard_end());

	CHECK(ftruncate(fileno(file), (off_t)LEN / 2) == 0);
	CHECK(signal_of_reader(at) == SIGBUS);
	guard_begin();
	CHECK(sum(at) == 7 * LEN / 2 / 512);
	CHECK(guard_end());
	guard_begin(); /* another look is another one */
	CHECK(!guard_end());

	CHECK(ftruncate(fileno(file), 0) == 0);
	CHECK(signal_of_reader(at) == SIGBUS);
	return 0;
}
