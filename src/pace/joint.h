/*
 * Inside pace/: the gang of several slices that the slice's policy names, and this process's part
 * in it (docs/design/gangs.md).
 *
 * If the process cannot join the gang, it logs the reason once, and tries again after a second. If
 * other processes of the slice prevented it, it tries again after 0.1 s, and logs the reason only
 * after some attempts: the others may still be in another such gang, as after `vgpu set`. If the
 * file is lost later, the next launch tries again.
 */
#pragma once

#include "gang.h"
#include "region.h"

/* The policy names the gang of the file with that path; NULL: it names none. Any thread, at any
 * time. */
void joint_name(const char *path);

void joint_forked(void); /* in a forked child */

/* Whether joint_settle may have another answer than before: some loads, and a clock's after a
 * failure. */
bool joint_is_due(void);

/* The gang that the process's members are to be in; NULL: the slice's own. The caller serialises,
 * here as below. */
const struct gang *joint_settle(struct region *region);

/* Makes the device a member of a gang that joint_settle gave; false: that cannot be, and
 * joint_settle says NULL from now on. */
bool joint_join(const struct gang *gang, struct gang_member *self, uint32_t device);
void joint_leave(const struct gang *gang, struct gang_member *self);

/* Looks whether the file of the gang still is there: some 2 us. Any thread. */
void joint_watch(void);
