/* Slices for containers: what the commands on them share. */
#pragma once

#include <stdbool.h>

#include "cli.h"
#include "policy.h"
#include "spec.h"

#define CDI_FLAG_LEN (PATH_MAX + 128)

/* A slice binds nobody who may write its policy: 0 where this user may make one, else what to exit
 * with after a line on stderr. */
int cdi_check_user(void);

/* The mounts of the slice as flags of podman run, docker run and nerdctl run. Returns how many. */
unsigned cdi_flags(const struct container_places *places, const struct container_slice *slice,
		   char ret_flags[CONTAINER_MOUNTS_MAX][CDI_FLAG_LEN]);

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
