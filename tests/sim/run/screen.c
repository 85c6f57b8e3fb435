/*
 * A terminal with a program in it, and somebody at its keys:
 *
 *     run_screen COMMAND [ARGUMENT...] -- ACTION...
 *
 *     see WORD        wait until the program has written it, since the last action
 *     frame 'A B C'   have the screen drawn anew (^L): the words are on it, in this order
 *     type KEYS       press them
 *     size ROWSxCOLS  change the window
 *     signal NUMBER   send the program a signal
 *     stopped         wait until it is stopped, by ^Z: the terminal is as it was before; continue
 *     ended STATUS    wait for its end, with that status, or 128 + a signal's number: likewise
 *
 * The terminal is an xterm of 24 lines and 100 columns. Each action has PATIENCE_S.
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

#define PATIENCE_S 50
#define CLEAR      "\33[H\33[2J" /* how an xterm is cleared, and given back */
#define GIVE_BACK  "\33[?1049l"

/* Written by main's thread alone. */
static int master = -1;
static pid_t shell = -1, job = -1;
static char *output;     /* all of it, NUL-terminated */
static size_t len, mark; /* of the last action */
static struct termios before;

static _Noreturn __attribute__((format(printf, 1, 2))) void fail(const char *format, ...)
{
	va_list args;

	fputs("screen: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "; since the last action the program wrote:\n%s\n", output + mark);
	if (job > 0)
		kill(job, SIGKILL);
	if (shell > 0)
		kill(shell, SIGKILL);
	exit(1);
}

/* -- the program ------------------------------------------------------------------------------- */

static int open_terminal(void)
{
	struct winsize size = {24, 100, 0, 0};
	int slave;

	master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 ||
	    (slave = open(ptsname(master), O_RDWR | O_NOCTTY)) < 0) {
		perror("screen: skipped, this machine gives out no pseudo-terminals");
		exit(77);
	}
	ioctl(master, TIOCSWINSZ, &size);
	if (tcgetattr(slave, &before) < 0)
		fail("no attributes: %s", strerror(errno));
	return slave;
}

static _Noreturn void be_job(int slave, char **argv)
{
	setpgid(0, 0);
	tcsetpgrp(slave, getpid());
	signal(SIGTTOU, SIG_DFL);
	for (int fd = 0; fd < 3; fd++)
		dup2(slave, fd);
	setenv("TERM", "xterm", 1);
	unsetenv("COLUMNS");
	unsetenv("LINES");
	execv(argv[0], argv);
	_exit(99);
}

/* A shell with job control: without one, ^Z stops nobody. Tells the job's pid, and then each change
 * of its state. */
static _Noreturn void be_shell(int slave, int tell, char **argv)
{
	int status;
	pid_t pid;

	if (setsid() < 0 || ioctl(slave, TIOCSCTTY, 0) < 0)
		_exit(98);
	signal(SIGTTOU, SIG_IGN);
	pid = fork();
	if (pid == 0)
		be_job(slave, argv);
	setpgid(pid, pid);
	if (write(tell, &pid, sizeof(pid)) != sizeof(pid))
		_exit(97);
	while (waitpid(pid, &status, WUNTRACED) == pid)
		if (write(tell, &status, sizeof(status)) != sizeof(status) || !WIFSTOPPED(status))
			break;
	pause(); /* or the terminal would be hung up */
	_exit(0);
}

/* -- what it writes ---------------------------------------------------------------------------- */

static void take_output(void)
{
	char buf[4096];
	ssize_t n = read(master, buf, sizeof(buf));

	if (n <= 0)
		return;
	output = realloc(output, len + (size_t)n + 1);
	if (!output)
		abort();
	for (ssize_t i = 0; i < n; i++)
		output[len + (size_t)i] = buf[i] ? buf[i] : ' ';
	len += (size_t)n;
	output[len] = '\0';
}

/* Waits until there is something to read from fd, or to see. */
static void wait_for(int fd, time_t until)
{
	struct pollfd wanted[] = {{.fd = master, .events = POLLIN}, {.fd = fd, .events = POLLIN}};

	if (time(NULL) > until)
		fail("nothing happens for %d seconds", PATIENCE_S);
	poll(wanted, 2, 1000);
	if (wanted[0].revents & POLLIN)
		take_output();
}

static void see(const char *word)
{
	time_t until = time(NULL) + PATIENCE_S;

	while (!strstr(output + mark, word))
		wait_for(-1, until);
}

/* The keys' line is the last one of a frame. */
static const char *see_frame(void)
{
	time_t until = time(NULL) + PATIENCE_S;
	const char *frame;

	if (write(master, "\f", 1) != 1)
		fail("typing: %s", strerror(errno));
	while (!(frame = strstr(output + mark, CLEAR)) || !strstr(frame, "processes\33"))
		wait_for(-1, until);
	return frame;
}

static void check_frame(const char *words)
{
	char *copy = strdup(words), *rest = copy;
	const char *at = see_frame();

	for (char *word; (word = strsep(&rest, " "));) {
		at = strstr(at, word);
		if (!at)
			fail("\"%s\" of \"%s\" is not there", word, words);
		at += strlen(word);
	}
	free(copy);
}

/* -- actions ----------------------------------------------------------------------------------- */

static void type(const char *keys)
{
	if (write(master, keys, strlen(keys)) != (ssize_t)strlen(keys))
		fail("typing: %s", strerror(errno));
}

static void change_size(const char *text)
{
	struct winsize size = {0, 0, 0, 0};

	if (sscanf(text, "%hux%hu", &size.ws_row, &size.ws_col) != 2 ||
	    ioctl(master, TIOCSWINSZ, &size) < 0)
		fail("no size: %s", text);
}

/* The next change of the job's state. */
static int next_status(int told)
{
	time_t until = time(NULL) + PATIENCE_S;
	struct pollfd wanted = {.fd = told, .events = POLLIN};
	int status;

	while (poll(&wanted, 1, 0) != 1)
		wait_for(told, until);
	if (read(told, &status, sizeof(status)) != sizeof(status))
		fail("the shell has ended");
	return status;
}

static void check_given_back(void)
{
	struct termios now;

	see(GIVE_BACK);
	if (tcgetattr(master, &now) < 0 || now.c_iflag != before.c_iflag ||
	    now.c_oflag != before.c_oflag || now.c_lflag != before.c_lflag)
		fail("the terminal is not as it was");
}

static void check_stopped(int told)
{
	int status = next_status(told);

	if (!WIFSTOPPED(status))
		fail("the program is not stopped: status %#x", (unsigned)status);
	check_given_back();
	mark = len;
	kill(job, SIGCONT);
}

static void check_ended(int told, int expected)
{
	int status = next_status(told);

	if ((WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status)) != expected)
		fail("the program's status is %#x", (unsigned)status);
	check_given_back();
	job = -1;
}

/* Returns how many words the action has. */
static int act(char **action, int told)
{
	const char *what = action[0], *value = action[1];

	if (strcmp(what, "see") == 0) {
		see(value);
		return 2;
	}
	mark = len;
	if (strcmp(what, "stopped") == 0) {
		check_stopped(told);
		return 1;
	}
	if (strcmp(what, "frame") == 0)
		check_frame(value);
	else if (strcmp(what, "type") == 0)
		type(value);
	else if (strcmp(what, "size") == 0)
		change_size(value);
	else if (strcmp(what, "signal") == 0)
		kill(job, (int)strtol(value, NULL, 10));
	else if (strcmp(what, "ended") == 0)
		check_ended(told, (int)strtol(value, NULL, 10));
	else
		fail("%s is no action", what);
	return 2;
}

int main(int argc, char **argv)
{
	int slave, tell[2], first = 1;

	output = calloc(1, 1);
	while (first < argc && strcmp(argv[first], "--") != 0)
		first++;
	if (first >= argc || !output)
		return 2;
	argv[first++] = NULL;
	slave = open_terminal();
	if (pipe2(tell, O_CLOEXEC))
		return 2;
	shell = fork();
	if (shell == 0)
		be_shell(slave, tell[1], argv + 1);
	close(tell[1]);
	job = next_status(tell[0]); /* a pid, as large as a status */
	while (first < argc)
		first += act(argv + first, tell[0]);
	kill(shell, SIGKILL);
	return 0;
}
