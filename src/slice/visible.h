/*
 * What the driver is to be told in CUDA_VISIBLE_DEVICES, so that it shows the slice's GPUs and no
 * others: what the application asked for there, understood as if the slice's GPUs were all that
 * there are. Pure: nothing is read but the arguments.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "policy.h"

#define VISIBLE_LIST_LEN ((size_t)VGPU_DEVICES_MAX * VGPU_UUID_LEN)

/* The machine, as far as it is known: what numbers mean depends on it. */
struct visible_order {
	unsigned gpu_count;          /* GPUs that it has; 0: nothing is known */
	int place[VGPU_DEVICES_MAX]; /* the policy's devices among them, -1 for one not there */
};

/* Whether visible_compose goes by the order. asked is the variable's value, NULL if it is not set.
 */
bool visible_needs_order(const struct policy *policy, const char *asked);

/*
 * The list, of whole UUIDs, commas between them; empty for none. Numbers count the policy's devices
 * in the order of their places, or as the policy has them where nothing is known; those that are
 * not there are left out, but MIG instances, which have no place and come last. A device that is
 * asked for twice is listed twice: the driver has its own answer to that.
 * False: the driver needs to be told nothing, because the machine has no other GPUs.
 */
bool visible_compose(const struct policy *policy, const char *asked,
		     const struct visible_order *order, char ret_list[VISIBLE_LIST_LEN]);
