/*
 * A terminal with a small shell in it, which runs argv[1…] as a job in the foreground: run_signals,
 * whose last two arguments are the files by which it says that it is ready and is told to end.
 *
 * Types ^C, ^\, and changes the window's size: each must be counted once. Types ^Z: the job must be
 * seen stopped by its parent, both its processes; continued as a group, it must run on.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* Written by main alone, before anything can fail that needs them. */
static int master = -1;
static pid_t shell = -1;

static void pause_ms(long ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&time, NULL);
}

/* Ends the job and its shell: a job that is stopped would never end by itself. */
static void end_all(void)
{
	pid_t job = master < 0 ? -1 : tcgetpgrp(master);

	if (shell <= 0)
		return;
	if (job > 0 && job != getpgrp())
		kill(-job, SIGKILL);
	kill(shell, SIGKILL);
}

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "terminal: %s: %s\n", what, strerror(errno));
	end_all();
	exit(1);
}

/* The terminal's two ends; the shell's becomes its controlling terminal. */
static int open_terminal(void)
{
	int slave;

	master = posix_openpt(O_RDWR | O_NOCTTY);
	if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 ||
	    (slave = open(ptsname(master), O_RDWR | O_NOCTTY)) < 0) {
		perror("terminal: skipped, this machine gives out no pseudo-terminals");
		exit(77);
	}
	if (fcntl(master, F_SETFD, FD_CLOEXEC) < 0)
		fail("no terminal");
	return slave;
}

static _Noreturn void be_job(int slave, int output, char **argv)
{
	setpgid(0, 0);
	tcsetpgrp(slave, getpid());
	signal(SIGTTOU, SIG_DFL);
	dup2(slave, 0);
	dup2(output, 1);
	execv(argv[0], argv);
	_exit(99);
}

/* The job's parent: its process group in the foreground; a byte to notify when it stops. */
static _Noreturn void be_shell(int slave, int output, int notify, int told, char **argv)
{
	int status;
	char byte;
	pid_t job;

	if (setsid() < 0 || ioctl(slave, TIOCSCTTY, 0) < 0)
		fail("no controlling terminal");
	signal(SIGTTOU, SIG_IGN);
	job = fork();
	if (job == 0)
		be_job(slave, output, argv);
	setpgid(job, job);
	while (waitpid(job, &status, WUNTRACED) == job && WIFSTOPPED(status)) {
		if (write(notify, "", 1) != 1 || read(told, &byte, 1) != 1)
			_exit(98);
		kill(-job, SIGCONT);
	}
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 97);
}

static void type(char key)
{
	if (write(master, &key, 1) != 1)
		fail("typing");
	pause_ms(100);
}

static void wait_for(const char *path)
{
	for (int i = 0; i < 5000; i++) {
		if (access(path, F_OK) == 0)
			return;
		pause_ms(20);
	}
	fail(path);
}

/* What comes on fd until its end. */
static void read_all(int fd, char *buf, size_t len)
{
	size_t at = 0;
	ssize_t n;

	while (at < len - 1 && (n = read(fd, buf + at, len - 1 - at)) > 0)
		at += (size_t)n;
	buf[at] = '\0';
}

int main(int argc, char **argv)
{
	static const char expected[] = "INT 1\nQUIT 1\nCONT ";
	struct pollfd stopped;
	int slave, output[2], notify[2], told[2], status;
	struct winsize size = {24, 80, 0, 0};
	char byte, text[256];
	FILE *end;

	if (argc < 4)
		return 2;
	slave = open_terminal();
	if (pipe2(output, O_CLOEXEC) || pipe2(notify, O_CLOEXEC) || pipe2(told, O_CLOEXEC))
		fail("no pipes");
	shell = fork();
	if (shell == 0)
		be_shell(slave, output[1], notify[1], told[0], argv + 1);
	close(output[1]);
	close(notify[1]);
	wait_for(argv[argc - 2]);
	type('\x03');
	type('\x1c');
	if (ioctl(master, TIOCSWINSZ, &size) < 0)
		fail("resizing");
	pause_ms(100);
	type('\x1a');
	stopped = (struct pollfd){.fd = notify[0], .events = POLLIN};
	if (poll(&stopped, 1, 100000) != 1 || read(notify[0], &byte, 1) != 1)
		fail("the job does not stop");
	pause_ms(100);
	if (write(told[1], "", 1) != 1)
		fail("telling");
	pause_ms(100);
	end = fopen(argv[argc - 1], "w");
	if (!end || fclose(end))
		fail(argv[argc - 1]);
	read_all(output[0], text, sizeof(text));
	if (waitpid(shell, &status, 0) != shell || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		fprintf(stderr, "terminal: the job's status is %#x\n", status);
		return 1;
	}
	if (strncmp(text, expected, strlen(expected)) != 0 || !strstr(text, "\nWINCH 1\n")) {
		fprintf(stderr, "terminal: the command counted:\n%s", text);
		return 1;
	}
	return 0;
}
