/* Managed variables of modules and libraries (`__managed__`). No call allocates or frees their
 * memory. So a variable is charged when its address is handed out, and refunded when the driver has
 * no managed memory at the address any more. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A charged variable. */
struct quota_variable {
	uint64_t address;
	uint64_t look_up; /* the number of its last look-up */
};

/* The driver has said where a managed variable is. It is charged on the device as managed memory,
 * unless the address is charged already. 0, -EDQUOT, -ETIMEDOUT. */
int quota_variable_charge(int device, uint64_t address, uint64_t bytes);

/* How many look-ups of variables there have been. */
uint64_t quota_variable_look_ups(void);

/* Moves on to the charged variable whose last look-up comes next after variable->look_up. False:
 * there is none. */
bool quota_variable_next(struct quota_variable *variable);

/* The driver has no managed memory at the variable's address, so its charge is refunded. If the
 * address was looked up again since quota_variable_next, nothing happens. */
void quota_variable_forget(const struct quota_variable *variable);

/* -- inside quota/ -- */

void variables_forked(void); /* in a forked child */
