/*
 * A policy: a directory with one file per GPU of the slice, named by its UUID ("GPU-…"), and
 * optionally one named "slice". Lines "key = value", "#" starts a comment.
 *
 *   GPU-…:   memory = 8G        bytes, k m g t for powers of 1024; or unlimited. It must be there
 *            cores = 30         percent of the GPU's time, 1 to 100; unlimited, or without it, no
 *                               compute limit
 *            cores = 30-100     30 assured, and up to 100 as long as no other slice wants it
 *            burst = 25ms       how much unused GPU time the slice may save under its limit, and
 *                               use at once: 0 to 1s; without it, as vgpu has it
 *   slice:   region = /path     where the slice's region lies
 *            name = NAME        for people
 *            oversubscribe = yes   memory that does not fit on the card may lie in the host's
 *                                  memory; yes or no, or true or false; no without it
 *            gang = yes         whether a compute limit throttles all GPUs and processes of the
 *                               slice as one: yes or no; without it, those whose kernels can wait
 *                               for each other are found
 *            gang = NAME        the same as yes, together with the other slices of that gang: the
 *                               name is 1 to 64 of A-Z a-z 0-9 . _ - and does not begin with "."
 *            group = 100        the number of the group whose processes, besides the owner's, may
 *                               write the region; without it, all processes that can reach its file
 *                               may
 *
 * An unknown key or file name is an error. So is a value that does not parse, a GPU's file without
 * a memory line, or an empty file "slice". A policy that is not understood, or only half written,
 * must not be half obeyed. Names that begin with "." are skipped.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"
#include "vgpu_region.h"

struct policy_device {
	char uuid[VGPU_UUID_LEN];
	uint64_t memory_bytes;   /* 0: no limit */
	unsigned cores_pct;      /* 0: no limit */
	unsigned cores_most_pct; /* what the slice may take while no other wants it, more than
				  * cores_pct; 0: no more than that */
	uint64_t burst_ns;       /* 0: as vgpu has it; POLICY_NO_BURST: none. As in the region */
};

#define POLICY_NO_BURST ((uint64_t)1) /* ns */

/* A policy's setting for gangs. */
enum policy_gang_rule {
	POLICY_GANG_FOUND, /* nothing: they are found */
	POLICY_GANG_YES,
	POLICY_GANG_NO,
	POLICY_GANG_NAMED, /* the slice belongs to the gang of that name, as other slices may */
};

#define POLICY_GANG_MAX 64 /* bytes of a gang's name */

struct policy_gang {
	enum policy_gang_rule rule;
	char name[POLICY_GANG_MAX + 4]; /* "" without POLICY_GANG_NAMED */
};

struct policy {
	unsigned device_count;
	struct policy_device device[VGPU_DEVICES_MAX];
	char region_path[4096]; /* "" when it names none */
	char name[64];
	bool oversubscribe;
	bool has_group; /* else everybody may write the region who can reach it */
	unsigned group; /* whose processes may, besides the owner's */
	struct policy_gang gang;
};

#define POLICY_GROUP_MAX 4294967294u

/* Reads a directory. -ENOENT when there is none (no fault then), -EINVAL or another errno with a
 * fault naming the file, the line and what would be right. The caller serialises. */
int policy_read(const char *dir, struct policy *ret_policy, struct fault *fault);

/* Parses one file's text, as policy_read finds it under that name. The fuzzer calls this. */
int policy_parse(const char *name, const char *text, struct policy *policy, struct fault *fault);

/* Makes the directory's files (the directory must exist). Each is written under another name in the
 * directory and renamed, mode 0644, so that a reader sees a whole one. */
int policy_write(const char *dir, const struct policy *policy, struct fault *fault);

/* The word for the setting, as in a policy; "found" where the policy has none. */
const char *policy_gang_word(const struct policy_gang *gang);
/* Parses a word: yes, no, or a gang's name. False: it is none of these. "found", "true", "false"
 * and the like are no names, in either case, because a user who writes them means something else.
 */
bool policy_gang_parse(const char *word, struct policy_gang *ret_gang);
bool policy_gang_equals(const struct policy_gang *gang, const struct policy_gang *other);

/* A compute limit as people write it: "30", or "30-100". */
struct policy_cores {
	unsigned pct;      /* 1 to 100 */
	unsigned most_pct; /* as in a policy */
};

/* False: it is no share of a GPU's time, and no two of which the second is not less. */
bool policy_cores_parse(const char *text, struct policy_cores *ret_cores);
/* "30" or "30-100". Returns buf. */
char *policy_cores_name(unsigned pct, unsigned most_pct, char *buf, size_t len);

/* burst_ns of a time, as a policy has it; false: it is no time, or too long. */
bool policy_burst_parse(const char *text, uint64_t *ret_burst_ns);
/* The time for it, or "default". Returns buf. */
char *policy_burst_name(uint64_t burst_ns, char *buf, size_t len);

/* The device's index, or -1. */
int policy_find(const struct policy *policy, const char *uuid);
