/* Runs a command as a child process, so that its parent and the terminal seem to run it
 * directly. */
#pragma once

/*
 * Runs the file `program`, a path with a slash, with argv, and waits for its end. Returns the exit
 * status for this process: the command's own status, or 128 + N if signal N killed the command.
 * After a line on stderr, it is CLI_NOT_FOUND, CLI_NOT_EXECUTABLE or CLI_FAILED.
 *
 * The command gets the signal mask and dispositions that this process was started with. Signals
 * that a process sends to this process are passed on to the command. Signals of the terminal
 * are not passed on, because the terminal sends them to the command as well. When the command
 * is stopped, this process stops too, until both are continued.
 *
 * The signals of this file stay blocked after the return, so no signal interrupts the caller's
 * cleanup.
 */
int child_run(const char *program, char **argv);
