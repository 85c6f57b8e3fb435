/*
 * Declarations that the files of a policy's reader and writer share:
 *
 *     policy.c         a directory, its files, and their lines
 *     policy_key.c     the keys, and what each may hold
 *     policy_write.c   a policy as text
 */
#pragma once

#include <stdbool.h>

#include "fault.h"
#include "policy.h"

#define POLICY_FILE_MAX   6144 /* bytes of one file: the longest path, and room for remarks */
#define POLICY_PATH_MAX   4096 /* bytes of a path, with its end */
#define POLICY_SLICE_FILE "slice"
#define POLICY_UNLIMITED  "unlimited"

/* The line that a fault names. */
struct policy_place {
	const char *file;
	unsigned line;
};

/* The values of a file's lines that have been read so far. */
struct policy_entry {
	struct policy *policy;
	int device;    /* its index, or -1 in the file "slice" */
	unsigned seen; /* a bit for each key */
};

/* Takes the value of a key. -EINVAL with a fault: the file has no such key, the key is there a
 * second time, or the value does not parse. */
int policy_set_key(struct policy_entry *entry, const char *name, const char *value,
		   const struct policy_place *place, struct fault *fault);
/* Whether the file has said how much memory the GPU's slice may hold. */
bool policy_has_memory(const struct policy_entry *entry);

/* Cuts a comment off, in place. A "#" starts a comment where the line does, or after a blank: paths
 * may have one inside. */
void policy_cut_comment(char *line);
/* Cuts blanks off both ends of the line, in place. Returns its first byte that is none. */
char *policy_trim(char *line);
