/*
 * Shared by the tests of memory that processes share. An actor is a process that calls CUDA.
 * The scene, which does not, orders the actors to take one step after another. It checks the
 * device from outside, and the slice's ledger.
 */
#pragma once

#include "cuda_api.h"

#define SIZE    (64 * MIB)
#define FIGURE  (CONTEXT + 9 * MIB) /* bytes on the device of an actor without allocations */
#define CHARGE  (CONTEXT + HIDDEN)  /* bytes that its slice is charged */
#define THINGS  8
#define POSIX   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
#define DMA_BUF CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD

/* -- actors ----------------------------------------------------------------------------------- */

/* Handles that the actors pass to each other, in shared memory. */
struct board {
	CUipcMemHandle ipc[THINGS];
	CUmemPoolPtrExportData pointers[THINGS];
};
extern struct board *board;

/* Each actor has its own, by number. */
extern CUmemGenericAllocationHandle handles[THINGS];
extern CUdeviceptr addresses[THINGS];
extern int files[THINGS];

/* One step of an actor. The result goes to the scene. */
typedef uint64_t step(uint64_t argument);

/* Defines a step whose whole work is one expression, and whose result is 0. i: the argument. */
#define STEP(name, expression)    \
	uint64_t name(uint64_t i) \
	{                         \
		(void)i;          \
		expression;       \
		return 0;         \
	}                         \
	_Static_assert(1, "a step of an actor")

/* Sets the limit of the slice, 4 GiB, and makes what actors share. Call it before actor(). */
void begin(void);
struct member actor(void);
struct member outsider(const char *limit); /* an actor of another slice with that limit */
uint64_t order(struct member *member, step *todo, uint64_t argument);
void dismiss(struct member *member);

/* Passes a descriptor from the actor that sends to the actor that receives next. */
void parcel_send(int fd);
int parcel_receive(void);

/* -- what is true ----------------------------------------------------------------------------- */

/* Checks that `living` actors of the slice live, and that the device and the ledger have
 * `bytes` besides their contexts. */
void assert_held(unsigned living, uint64_t bytes);
/* Checks the bytes that an actor of the slice is charged besides its context. */
void assert_charged(const struct member *member, uint64_t data, uint64_t offset);
/* Checks the bytes that an actor of another slice is charged besides its context. */
void assert_outsider(struct member *member, uint64_t data, uint64_t offset);

/* Compares the accounts with NVML's figure three times: waits until that is due, and allocates. */
void compare(void);

/* -- steps that more than one program takes --------------------------------------------------- */

step look; /* compares the accounts with NVML's figure, which happens once a second */
step context_reset;

/* Memory by handle. send_off exports it, sends the descriptor and keeps none. fetch receives
 * and imports it, and keeps no descriptor either. receive and import are the two halves of
 * fetch. */
step create, export, send_off, receive, import, fetch, release;
step file_close;

/* Memory by address. */
step allocate, give_back_address;
step allocate_small; /* two such blocks share a granule */
step tidy;           /* refunds the spare granule */
