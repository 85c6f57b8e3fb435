/*
 * There are no signal handlers. The signals, SIGCHLD among them, are blocked before the fork,
 * and sigwaitinfo fetches them one by one. So no signal arrives between two instructions.
 *
 * The terminal sends its signals (SIGINT, SIGQUIT, SIGTSTP, SIGWINCH) to the whole foreground
 * process group, which has the command and this process. These signals come from the kernel
 * (SI_KERNEL). If this process passed them on, the command would get them twice. A signal from
 * a process is passed on, unless the command sent it: its kill(0, …) reached the command as
 * well.
 */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

static const int passed_on[] = {
	SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT,
};

/* The signal mask and the disposition of SIGCHLD that this process was started with. */
struct inherited {
	sigset_t mask;
	struct sigaction on_child;
};

/* Blocks the signals that this process waits for. SIGCHLD gets its default disposition: if it
 * were ignored, the kernel would discard the command's status. */
static void take_signals(sigset_t *ret_ours, struct inherited *ret_inherited)
{
	struct sigaction by_default;

	sigemptyset(ret_ours);
	sigaddset(ret_ours, SIGCHLD);
	for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
		sigaddset(ret_ours, passed_on[i]);
	sigprocmask(SIG_BLOCK, ret_ours, &ret_inherited->mask);
	memset(&by_default, 0, sizeof(by_default));
	by_default.sa_handler = SIG_DFL;
	sigaction(SIGCHLD, &by_default, &ret_inherited->on_child);
}

/* In the child process: runs the command. If that fails, writes the errno to the pipe. */
static _Noreturn void become(const char *program, char **argv, const struct inherited *inherited,
			     int reason_fd)
{
	sigaction(SIGCHLD, &inherited->on_child, NULL);
	sigprocmask(SIG_SETMASK, &inherited->mask, NULL);
	execvp(program, argv); /* unlike execv, runs a text without "#!" by the shell */

	int reason = errno;

	if (write(reason_fd, &reason, sizeof(reason)) != sizeof(reason))
		_exit(CLI_FAILED);
	_exit(CLI_NOT_EXECUTABLE);
}

/* Waits until the command runs or has failed to start. Returns the errno of the failure, or 0.
 */
static int read_reason(int fd)
{
	int reason = 0;
	ssize_t n;

	do
		n = read(fd, &reason, sizeof(reason));
	while (n < 0 && errno == EINTR);
	return n == sizeof(reason) ? reason : 0;
}

/* Whether the signal must be passed on to the command. */
static bool is_for_command(const siginfo_t *info, pid_t child)
{
	if (info->si_code == SI_KERNEL) /* only the session's leader gets the hangup */
		return info->si_signo == SIGHUP && getsid(0) == getpid();
	return info->si_pid != child;
}

/*
 * Stops this process by SIGTSTP, as the terminal's stop key does. If no shell could continue
 * this process, the kernel ignores the signal. SIGCONT ends the stop even though SIGCONT is
 * blocked, and wait_for passes it on next. The stop would discard a SIGCONT that is already
 * pending, so then this process does not stop.
 */
static void stop_ourselves(void)
{
	sigset_t stop, pending;

	sigpending(&pending);
	if (sigismember(&pending, SIGCONT))
		return;
	sigemptyset(&stop);
	sigaddset(&stop, SIGTSTP);
	raise(SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &stop, NULL); /* stopped here */
	sigprocmask(SIG_BLOCK, &stop, NULL);
}

/* Whether the command has ended. *ret_status is then its status from waitpid. While the command
 * is stopped, this process stops as well. */
static bool has_ended(pid_t child, int *ret_status)
{
	while (waitpid(child, ret_status, WNOHANG | WUNTRACED) == child) {
		if (!WIFSTOPPED(*ret_status))
			return true;
		stop_ourselves();
	}
	return false;
}

/* Passes signals on until the command ends. Returns the exit status that child_run returns. */
static int wait_for(pid_t child, const sigset_t *ours)
{
	siginfo_t info;
	int status;

	while (!has_ended(child, &status)) {
		if (sigwaitinfo(ours, &info) < 0 || info.si_signo == SIGCHLD)
			continue;
		if (is_for_command(&info, child))
			kill(child, info.si_signo);
	}
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int report(const char *name, int reason)
{
	if (reason == ENOENT)
		return cli_fail(CLI_NOT_FOUND, "%s: not found: check its name, and PATH", name);
	return cli_fail(
		CLI_NOT_EXECUTABLE,
		"%s cannot be run: %s: check that this user may execute it, and that it is for "
		"this machine",
		name, strerror(reason));
}

int child_run(const char *program, char **argv)
{
	struct inherited inherited;
	int reason_fds[2], reason, status;
	sigset_t ours;
	pid_t child;

	if (pipe2(reason_fds, O_CLOEXEC) < 0)
		return cli_fail(CLI_FAILED,
				"the command cannot be started, because no pipe can be made: %s: "
				"close files, or raise the limit (ulimit -n)",
				strerror(errno));
	take_signals(&ours, &inherited);
	child = fork();
	if (child == 0)
		become(program, argv, &inherited, reason_fds[1]);
	close(reason_fds[1]);
	if (child < 0) {
		close(reason_fds[0]);
		return cli_fail(
			CLI_FAILED,
			"the command cannot be started, because no process can be made: %s: "
			"end other processes, or raise the limit (ulimit -u)",
			strerror(errno));
	}
	reason = read_reason(reason_fds[0]);
	close(reason_fds[0]);
	status = wait_for(child, &ours);
	return reason ? report(program, reason) : status;
}
