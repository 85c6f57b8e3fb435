/*
 * The value of CUDA_VISIBLE_DEVICES with which the driver shows only GPUs of the slice. It is the
 * application's own value, interpreted as if the machine had the slice's GPUs and no others. The
 * functions read nothing but their arguments.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "policy.h"

#define VISIBLE_LIST_LEN ((size_t)VGPU_DEVICES_MAX * VGPU_UUID_LEN)

/* The machine, as far as it is known. The meaning of numbers depends on it. */
struct visible_order {
	unsigned gpu_count;          /* GPUs that it has; 0: nothing is known */
	int place[VGPU_DEVICES_MAX]; /* the policy's devices among them, -1 for one not there */
};

/* Whether visible_compose goes by the order. asked is the variable's value, NULL if it is not set.
 */
bool visible_needs_order(const struct policy *policy, const char *asked);

/*
 * The list, of whole UUIDs, commas between them; empty for none. Numbers count the policy's devices
 * in the order of their places, or in the policy's order where nothing is known. Devices that are
 * not there are left out. MIG instances have no place, and come last. A device that is asked for
 * twice is listed twice: the driver has its own answer to that. False: the variable need not
 * change, because the machine has no other GPUs.
 */
bool visible_compose(const struct policy *policy, const char *asked,
		     const struct visible_order *order, char ret_list[VISIBLE_LIST_LEN]);
