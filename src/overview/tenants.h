/*
 * Counts the slices of each tenant, for a program that looks again and again. A tenant makes
 * directories and files as it likes, and must not keep others' slices from being looked at. A
 * tenant is a user, with the slices that its vgpu run made, or a container of `vgpu cdi`, of
 * Kubernetes or of HAMi.
 */
#pragma once

#include <stdbool.h>

#include "slices.h"

struct tenant {
	const struct slices_one *slice; /* one of its slices */
	unsigned slices;
};

struct tenants {
	unsigned count;
	struct tenant *tenant;
};

/* One more slice; whether its tenant has no more than `most` with it (0: always). Containers' come
 * in their order (slices_compare). Without memory, false. */
bool tenants_admit(struct tenants *tenants, const struct slices_one *slice, unsigned most);
void tenants_free(struct tenants *tenants); /* also of zeroed ones */
