/*
 * What a program does that comes to each step of the region's changes, and what others have to do
 * for it, for which it asks over its wire. The quotas are such that it has its room whatever the
 * eight (crowd.h) do.
 */
#pragma once

#include "faulty.h"

#define WORKERS 8
#define SHARED  (8 * MIB)

/* What the workers may fill among them and the partner; and what is kept free of them for the
 * walker, for who dies with the lock, and for 256 MiB of data. */
#define WORKING ((WORKERS + 1) * CHARGE + 2 * GIB)
#define QUOTA   (WORKING + 3 * CHARGE + 256 * MIB)

enum order {
	ORDER_STARTED = 1, /* it has a context */
	ORDER_DEAD_HOLDER, /* somebody dies with the lock */
	ORDER_SLOW_HOLDER, /* somebody has the lock, and keeps it for PLAN_DELAY_MS */
	ORDER_EXPORT,      /* the partner shares memory: its handle comes back */
	ORDER_FREE,        /* which it frees now */
	ORDER_OPEN,        /* the partner opens what the walker shares: its handle follows */
	ORDER_CLOSE,       /* which it closes now */
	ORDER_CLEAN,       /* the partner gives up whatever it has; from the scene */
	ORDER_END,         /* likewise */
};

void tell_handle(int wire, const CUipcMemHandle *handle);
CUipcMemHandle hear_handle(int wire);

/* A process that shares memory with the walker, and does orders. */
void partner(int wire);

/*
 * The roles that walk.c registers: `walk`; and `holder`, which is killed or delayed at its first
 * charge, with the lock. The holder sees one GPU of two, for the walker to add the other.
 */
