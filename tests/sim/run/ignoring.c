/* Runs argv[1…] with SIGCHLD and SIGUSR1 ignored, and SIGUSR2 and SIGTERM blocked. */
#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	sigset_t blocked;

	if (argc < 2)
		return 2;
	signal(SIGCHLD, SIG_IGN);
	signal(SIGUSR1, SIG_IGN);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR2);
	sigaddset(&blocked, SIGTERM);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	execvp(argv[1], argv + 1);
	return 127;
}
