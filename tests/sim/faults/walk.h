/*
 * A program that reaches each step of the region's changes. It asks over its wire for the
 * actions of other processes that this needs. The quotas leave it room whatever the eight
 * workers (crowd.h) do.
 */
#pragma once

#include "faulty.h"

#define WORKERS 8
#define SHARED  (8 * MIB)

/* WORKING is what the workers and the partner may fill. QUOTA keeps room free for the walker,
 * for a process that dies with the lock, and for 256 MiB of data. */
#define WORKING ((WORKERS + 1) * CHARGE + 2 * GIB)
#define QUOTA   (WORKING + 3 * CHARGE + 256 * MIB)

enum order {
	ORDER_STARTED = 1, /* the program has a context */
	ORDER_DEAD_HOLDER, /* a process dies with the lock */
	ORDER_SLOW_HOLDER, /* a process keeps the lock for PLAN_DELAY_MS */
	ORDER_EXPORT,      /* the partner exports memory; its handle is the answer */
	ORDER_FREE,        /* the partner frees that memory */
	ORDER_OPEN,        /* the partner opens the walker's memory, whose handle follows */
	ORDER_CLOSE,       /* the partner closes it */
	ORDER_CLEAN,       /* the partner frees everything; sent by the scene */
	ORDER_END,         /* the partner ends; sent by the scene */
};

void tell_handle(int wire, const CUipcMemHandle *handle);
CUipcMemHandle hear_handle(int wire);

/* The body of the partner: it shares memory with the walker, and executes orders. */
void partner(int wire);

/*
 * The roles that walk.c registers: `walk`; and `holder`, which is killed or delayed at its first
 * charge, with the lock. The holder sees one GPU of two, for the walker to add the other.
 */
