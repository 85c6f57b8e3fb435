/* Slices for containers, for those who print them. */
#pragma once

#include <stdbool.h>

#include "cli.h"
#include "policy.h"
#include "spec.h"

struct cdi_slice {
	char name[CONTAINER_NAME_MAX + 1];
	char policy_path[PATH_MAX], region_path[PATH_MAX], spec_path[PATH_MAX];
	bool has_spec;        /* there is a specification at its usual path */
	char *why;            /* the policy cannot be read: the reason; else NULL */
	struct policy policy; /* zeroed then */
};

struct cdi_slices {
	unsigned count;
	struct cdi_slice *slice;
};

/* Those that there are, by name. 0, or what to exit with after a line on stderr. */
int cdi_find(const struct container_places *places, struct cdi_slices *ret_slices);
void cdi_free(struct cdi_slices *slices);

/* Prints them; returns what to exit with. */
int cdi_print(const struct cdi_slices *slices);
int cdi_print_json(const struct cdi_slices *slices);
