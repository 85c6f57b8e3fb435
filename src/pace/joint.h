/*
 * Inside pace/: the gang of several slices that the slice's policy names, and this process's part
 * in it.
 *
 * The gang is in a file (region/gang_file.h). If the process cannot join the gang, it logs the
 * reason once, and its members are in the slice's own gang. So they are always throttled, by
 * themselves. In that case, and where the file is lost later, another attempt follows within a
 * second.
 *
 * All processes of a slice that are in such a gang are in the same one: the slice's buckets are
 * charged for one of them. While another process of the slice is in another one, as after `vgpu
 * set`, the gang cannot be joined.
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
