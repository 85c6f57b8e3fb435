/* See watch.h: the program `busy` in a process of its own. */
#include "watch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t watcher;
static FILE *watched; /* what it prints */

void watch_begin(unsigned gpus)
{
	const char *program = getenv("BUSY");
	char count[16];
	int wires[2];

	if (!program || pipe(wires))
		return;
	snprintf(count, sizeof count, "%u", gpus);
	fflush(stdout);
	watcher = fork();
	if (!watcher) {
		dup2(wires[1], STDOUT_FILENO);
		close(wires[0]);
		close(wires[1]);
		unsetenv("LD_PRELOAD");
		execl(program, program, count, (char *)NULL);
		_exit(127);
	}
	close(wires[1]);
	watched = fdopen(wires[0], "r");
}

void watch_end(void)
{
	char line[256];

	if (watcher <= 0)
		return;
	kill(watcher, SIGTERM);
	if (watched && fgets(line, sizeof line, watched))
		printf("busy %s", line);
	waitpid(watcher, NULL, 0);
	watcher = 0;
}
