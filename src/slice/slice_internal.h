/* For the files of this component and for its tests; no other component includes this header. */
#pragma once

#include "slice.h"

/* The places where a slice is looked for; programs get SLICE_POLICY_DIR and its kin. */
struct slice_paths {
	const char *policy_dir;
	const char *region_default;
	const char *region_hami_dir;
};

/* slice_load, over other places than the well-known ones. */
int slice_load_from(const struct slice_paths *paths, struct slice *ret_slice, struct fault *fault);

/* HAMi's limits, device list and priority from the environment. -EINVAL with a fault when a value
 * does not parse; ret_env is untouched then. */
int environment_read(struct slice_env *ret_env, struct fault *fault);

/* Whether text starts as the UUID of a GPU or of a MIG slice of one. */
bool slice_is_uuid(const char *text);

/* 1 for yes, true and 1, 0 for no, false and 0, in either case; -1 for another word. */
int slice_word(const char *text);

#define SLICE_QUOTED_LEN 48

/* A value as a fault shows it: cut to what fits, and on one line whatever is in it. Returns buf. */
const char *slice_quote(const char *value, char buf[SLICE_QUOTED_LEN]);
