/* vgpu cdi: declarations that the files of the command share, and vgpu run --container. */
#pragma once

#include <stdbool.h>

#include "cli.h"
#include "policy.h"
#include "spec.h"

#define CDI_FLAG_LEN (PATH_MAX + 128) /* bytes of a flag, with its NUL */

/* Returns 0 if this user may make slices for containers, else the exit status after a line on
 * stderr. A slice cannot limit a user who may write its policy, so only root may make one. */
int cdi_check_user(void);

/* Writes the mounts of the slice as flags of podman run, docker run and nerdctl run. Returns
 * the number of flags. */
unsigned cdi_flags(const struct container_places *places, const struct container_slice *slice,
		   char ret_flags[CONTAINER_MOUNTS_MAX][CDI_FLAG_LEN]);

/* A slice for containers, as vgpu cdi --list shows it. */
struct cdi_slice {
	char name[CONTAINER_NAME_MAX + 1];
	char policy_path[PATH_MAX], region_path[PATH_MAX], spec_path[PATH_MAX];
	bool has_spec;        /* there is a specification at its usual path */
	char *why;            /* why the policy cannot be read; NULL: policy is valid */
	struct policy policy; /* all zero if the policy cannot be read */
};

struct cdi_slices {
	unsigned count;
	struct cdi_slice *slice;
};

/* Finds the machine's slices for containers, sorted by name. Returns 0, or the exit status
 * after a line on stderr. The caller frees the result with cdi_free. */
int cdi_find(const struct container_places *places, struct cdi_slices *ret_slices);
void cdi_free(struct cdi_slices *slices);

/* Print the slices on stdout, as a table or as one JSON document. Return the exit status. */
int cdi_print(const struct cdi_slices *slices);
int cdi_print_json(const struct cdi_slices *slices);
