/*
 * Two processes, the exporter and the importer, execute steps for a third process, which has no
 * CUDA. It checks which process's figure has memory that one exports to the other.
 */
#pragma once

#include "selftest.h"

extern struct actor {
	pid_t pid;
	int to, from;
	int departure; /* see tests/unit/departure.h */
} exporter, importer;

/* Handles that the actors leave for each other and for the test, in shared memory. */
struct board {
	CUipcMemHandle ipc;
	CUmemPoolPtrExportData pointers[2];
};
extern struct board *board;

/* Makes the machine, the board, and a socket for descriptors. Call it once, before the other
 * functions. */
void actors_begin(void);
/* Starts both actors. */
void actors_start(void);
struct actor actor_start(void);
void actor_kill(const struct actor *actor);
/* Has the actor execute a step, and returns after that. */
void tell(const struct actor *actor, void (*step)(void));

/* Passes a descriptor to the process that receives next. The sender closes its own. */
void fd_send(int fd);
int fd_receive(void);

/* Defines a step whose whole work is one call that succeeds: static STEP(end, cuEnd(it)); */
#define STEP(name, call)        \
	void name(void)         \
	{                       \
		CHECK_OK(call); \
	}                       \
	_Static_assert(1, "a step of an actor")

/* Checks MiB beyond contexts: the exporter's figure, the importer's, and those on the device.
 * -1: the actor is dead. */
#define CHECK_MIB(exporters, importers, device) check_mib(exporters, importers, device, __LINE__)
void check_mib(long long exporters, long long importers, long long device, int line);

/* One row of a test: the actor executes the step, and MiB are checked after it. */
#define TELL(actor, step, exporters, importers, device)  \
	do {                                             \
		tell(&(actor), step);                    \
		CHECK_MIB(exporters, importers, device); \
	} while (0)

#define POSIX CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
