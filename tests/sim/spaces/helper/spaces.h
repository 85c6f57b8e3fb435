/*
 * Pid namespaces for tests, as containers have them: the first process of each is pid 1 there, and
 * with it all others of it die.
 *
 * A test program gives its whole work to spaces_main. Whoever may not make namespaces gets a user
 * namespace in which he may, and then everything runs in that, in a pid namespace that stands for
 * the host's.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* For main to return: what play returns, or 77 and a line with the reason where namespaces cannot
 * be made. */
int spaces_main(int (*play)(int argc, char **argv), int argc, char **argv);

/* Whether pids are the machine's own, and not those of a pid namespace. */
bool space_is_host(void);

/* What is forked between the two is in a new pid namespace; the first one is pid 1. Ends the
 * process with 1 and a line where that fails. */
void space_begin(void);
void space_end(void);

/* Why a process cannot have mounts of its own here, for a test that is skipped; NULL if it can. */
const char *space_mounts_obstacle(void);

/* Why a process of that user cannot run the program and load what it preloads, or NULL. */
const char *space_user_obstacle(uid_t uid);

/* Why a process of that user cannot make a user namespace in which it is root, or NULL. */
const char *space_root_obstacle(uid_t uid);

/* The calling process gets a mount namespace of its own, of which no other sees anything. */
void space_own_mounts(void);

/* Makes a user namespace in which the caller is root, and has its privileges there alone. */
int space_become_root(void);
