/*
 * Counts the signals that it gets: makes the file argv[1] when it is ready, and when the file
 * argv[2] is there and at least argv[3] signals came, if that is given, prints "NAME COUNT" for
 * each and ends. Ends after a hundred seconds in any case.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t counts[65], total;

static void count(int number)
{
	counts[number]++;
	total++;
}

int main(int argc, char **argv)
{
	static const int numbers[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGUSR1,
				      SIGUSR2, SIGTERM, SIGCONT, SIGWINCH};
	static const char *const names[] = {"HUP",  "INT",  "QUIT", "USR1",
					    "USR2", "TERM", "CONT", "WINCH"};
	const struct timespec pause = {0, 10000000}, last = {0, 100000000};
	int wanted = argc > 3 ? atoi(argv[3]) : 0;
	struct sigaction action;
	FILE *ready;

	if (argc < 3)
		return 2;
	memset(&action, 0, sizeof(action));
	action.sa_handler = count;
	action.sa_flags = SA_RESTART;
	for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaction(numbers[i], &action, NULL);
	ready = fopen(argv[1], "w");
	if (!ready || fclose(ready))
		return 1;
	for (int i = 0; i < 10000 && (access(argv[2], F_OK) != 0 || total < wanted); i++)
		nanosleep(&pause, NULL);
	nanosleep(&last, NULL); /* for one too many */
	for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (counts[numbers[i]])
			printf("%s %d\n", names[i], (int)counts[numbers[i]]);
	return 0;
}
