/* The slice that a command was given by name, and with whose rights the command works on it. */
#pragma once

#include "cli.h"
#include "slices.h"

/* The variables that say where slices are looked for, for help texts. */
extern const struct cli_row given_environment[];

/* slices_list and slices_find for a command that has a NAME: 0, or what to exit with after a line
 * on stderr. ret_slices is to be freed in either case. */
int given_find(const char *name, struct slices *ret_slices, const struct slices_one **ret_one);

/* How many processes live in the region. The tenant may damage the file meanwhile. Errors as
 * region_view's; -EUCLEAN: it was truncated. ret_living is untouched then. */
int given_count_living(const char *region_path, unsigned *ret_living, struct fault *fault);

/*
 * given_act_for is called before root changes or reads files in another user's directory. From then
 * on the process acts with that user's rights, so that links of that user cannot redirect it.
 * given_act_again makes it root again. For a caller that is not root, both change nothing. 0, or
 * -EPERM with a fault.
 */
int given_act_for(const struct slices_one *one, struct fault *fault);
void given_act_again(void);
