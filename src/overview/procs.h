/*
 * The processes that /proc shows here, by the pids that they have in pid namespaces of their own.
 * A pid "here" is one of the pid namespace that we are in: on the host, the host's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct procs; /* what was found, kept from one look to the next */

struct procs *procs_new(void); /* NULL without memory */
void procs_free(struct procs *procs);

/* Begins a refresh: each process that is asked for is searched in /proc again. */
void procs_begin(struct procs *procs);

/* The pid here of the process that is `pid` in the pid namespace of that inode; 0 if it is not
 * known. */
int procs_find(struct procs *procs, uint64_t pid_namespace, int pid);

/* Whether what procs_find does not find is not there, as /proc shows all processes there are. */
bool procs_sees_all(struct procs *procs);

/* Whether our pid namespace is the host's. */
bool procs_is_host(const struct procs *procs);

/* The command line of a process, or its name in brackets where it has none, escaped (escape.h);
 * "" where there is no such process. */
void procs_command(int here, char *buf, size_t len);
