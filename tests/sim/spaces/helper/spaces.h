/*
 * PID namespaces for tests, as containers have them. The first process of each is pid 1 there,
 * and all other processes of the namespace die with it.
 *
 * A test program gives its whole work to spaces_main. A user that may not make namespaces gets
 * a user namespace in which it may. Everything then runs in that, in a PID namespace that
 * stands for the host's.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Calls play; main returns the result. It is play's, or 77 with a line about the reason where
 * namespaces cannot be made. */
int spaces_main(int (*play)(int argc, char **argv), int argc, char **argv);

/* Whether pids are the machine's own, and not those of a pid namespace. */
bool space_is_host(void);

/* Processes that are forked between the two are in a new PID namespace; the first one is pid 1.
 * A failure ends the process with 1 and a line. */
void space_begin(void);
void space_end(void);

/* The reason why a process cannot have mounts of its own here, for a test that is skipped;
 * NULL: it can. */
const char *space_mounts_obstacle(void);

/* The reason why a process of that user cannot run the program and load its preloaded
 * libraries, or NULL. */
const char *space_user_obstacle(uid_t uid);

/* The reason why a process of that user cannot make a user namespace in which it is root, or
 * NULL. */
const char *space_root_obstacle(uid_t uid);

/* Gives the calling process a mount namespace of its own, which no other process sees. */
void space_own_mounts(void);

/* Makes a user namespace in which the caller is root, and has its privileges there alone. */
int space_become_root(void);
