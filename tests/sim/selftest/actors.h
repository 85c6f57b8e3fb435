/*
 * Two processes, the exporter and the importer, that do what a third tells them, which has no CUDA
 * and looks: in whose figure memory is that goes from the one to the other.
 */
#pragma once

#include "selftest.h"

extern struct actor {
	pid_t pid;
	int to, from;
	int departure; /* see tests/unit/departure.h */
} exporter, importer;

/* What the actors leave for each other and for us. */
struct board {
	CUipcMemHandle ipc;
	CUmemPoolPtrExportData pointers[2];
};
extern struct board *board;

/* Makes the machine, the board and the way of descriptors. Once, first. */
void actors_begin(void);
/* Both of them. */
void actors_start(void);
struct actor actor_start(void);
void actor_kill(const struct actor *actor);
/* Returns when the step has been done. */
void tell(const struct actor *actor, void (*step)(void));

/* A descriptor, which the sender keeps no longer, goes to whoever receives next. */
void fd_send(int fd);
int fd_receive(void);

/* MiB beyond their contexts: the exporter's figure, the importer's, and on the device. -1: dead. */
#define CHECK_MIB(exporters, importers, device) check_mib(exporters, importers, device, __LINE__)
void check_mib(long long exporters, long long importers, long long device, int line);
