/* A command that runs as if this program were not between it and its parent. */
#pragma once

/*
 * Runs the file program, a path with a slash, with argv, and waits for its end. Returns what to
 * exit with: the command's own status, 128 + N when signal N killed it, or CLI_NOT_FOUND,
 * CLI_NOT_EXECUTABLE or CLI_FAILED with a line on stderr.
 *
 * It gets the signal mask and dispositions that this process was started with. Signals that are
 * sent to this process are passed on, those of the terminal not, which the command gets itself; and
 * when it is stopped, so are we, until somebody continues us both.
 *
 * Leaves the signals blocked that it waits for: what is left to do takes place undisturbed.
 */
int child_run(const char *program, char **argv);
