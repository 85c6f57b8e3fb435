/*
 * What the tests of memory that goes from process to process share: the actors, processes that have
 * CUDA and do one step after the other as the scene tells them, which has no CUDA and looks, at the
 * device from outside and at the slice's books.
 */
#pragma once

#include "cuda_api.h"

#define SIZE    (64 * MIB)
#define FIGURE  (CONTEXT + 9 * MIB) /* what an actor with nothing costs the device */
#define CHARGE  (CONTEXT + HIDDEN)  /* and its slice */
#define THINGS  8
#define POSIX   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
#define DMA_BUF CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD

/* -- actors ----------------------------------------------------------------------------------- */

/* What the actors leave for each other. */
struct board {
	CUipcMemHandle ipc[THINGS];
	CUmemPoolPtrExportData pointers[THINGS];
};
extern struct board *board;

/* Each actor's own, by number. */
extern CUmemGenericAllocationHandle handles[THINGS];
extern CUdeviceptr addresses[THINGS];
extern int files[THINGS];

/* What an actor does; the answer goes back to the scene. */
typedef uint64_t step(uint64_t argument);

/* The scene's limit, and what the actors have in common. Before any of them. */
void begin(void);
struct member actor(void);
struct member outsider(const char *limit); /* one of another slice, with that limit */
uint64_t order(struct member *member, step *todo, uint64_t argument);
void dismiss(struct member *member);

/* A descriptor goes from whoever sends one to whoever receives next. */
void parcel_send(int fd);
int parcel_receive(void);

/* -- what is true ----------------------------------------------------------------------------- */

/* The slice's living actors hold so much, all in all, and it is charged once. */
void assert_held(unsigned living, uint64_t bytes);
/* What is charged to it beside its context. */
void assert_charged(const struct member *member, uint64_t data, uint64_t offset);
/* The same asked of itself, by an actor of another slice. */
void assert_outsider(struct member *member, uint64_t data, uint64_t offset);

/* -- steps that more than one program takes --------------------------------------------------- */

step look; /* the books are compared with NVML's figure: due once a second */
step context_reset;

/* Memory by handle: send_off exports it, sends the descriptor and keeps none, fetch receives and
 * imports it, and keeps no descriptor either; receive and import are the first two of these. */
step create, export, send_off, receive, import, fetch, release;
step file_close;

/* Memory by address. */
step allocate, give_back_address;
step allocate_small; /* two of these share a granule */
step tidy;           /* no granule is charged that none of these needs */
