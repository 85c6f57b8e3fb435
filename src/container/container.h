/*
 * Slices for containers: the files of a slice on the host, and the ones that a container gets.
 *
 * A slice has, on the host:
 *
 *     POLICIES/NAME/         its policy (policy.h). A container has it, read-only, at
 *                            SLICE_POLICY_DIR
 *     SLICES/NAME/shared/    the directory of its region. A container has it, for every user of the
 *                            container, at CONTAINER_REGION_DIR
 *     SLICES/NAME/lock       a file: a process that changes or removes the slice has a byte locked
 *
 * and all slices share PRELOAD, a file whose one line is the library's path in a container. A
 * container has it at /etc/ld.so.preload, read-only, so that every program for glibc gets the
 * library.
 *
 * Containers are one slice if and only if they have the same region. So a container that must have
 * limits of its own gets a slice of its own.
 *
 * Policies outlast a restart of the machine. Regions are in memory (tmpfs), because the pacer
 * writes to them all the time: systemd-tmpfiles makes their directories at a start of the machine.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "fault.h"
#include "policy.h"

#define CONTAINER_LIBRARY    "/usr/local/lib/libvgpu.so" /* in a container */
#define CONTAINER_PRELOAD    "/etc/ld.so.preload"
#define CONTAINER_REGION_DIR "/run/vgpu"
#define CONTAINER_REGION     CONTAINER_REGION_DIR "/region"

#define CONTAINER_NAME_MAX 63
#define CONTAINER_DIR_LEN  512 /* of a place's path */

/* Where slices for containers are kept on the host. */
struct container_places {
	char policies[CONTAINER_DIR_LEN]; /* /etc/vgpu/slices */
	char slices[CONTAINER_DIR_LEN];   /* /run/vgpu-slices */
	char preload[CONTAINER_DIR_LEN];  /* /etc/vgpu/ld.so.preload */
	char specs[CONTAINER_DIR_LEN];    /* /etc/cdi: of CDI specifications (spec.h) */
	char tmpfiles[CONTAINER_DIR_LEN]; /* /etc/tmpfiles.d; it may be missing */
};

/* The usual places, or the same below the directory that VGPU_CONTAINERS names. -ENAMETOOLONG with
 * a fault. */
int container_find_places(struct container_places *ret_places, struct fault *fault);

struct container_slice {
	const char *name;
	const struct policy *policy; /* its name and region_path are ignored */
	const char *library;         /* libvgpu.so on the host: an absolute path */
	const char *turns;           /* a directory of the host, absolute: the slices that have it
				      * take turns on their GPUs; NULL: none */
	const char *gangs;           /* likewise: for the files of gangs of several slices */
	const char *socket;          /* vgpud's on the host, absolute: the slice takes turns by it,
				      * and gets its directory; NULL: it does not. No container
				      * starts while the directory is missing */
	const char *environment;     /* "NAME=VALUE" that its CDI device sets; NULL: nothing */
	bool must_be_new;            /* one that is there already is left as it is */
};

/* Whether it may name a slice for containers, and a CDI device: 1 to 63 of A-Z a-z 0-9 . _ -, with
 * a letter or a digit at the start and at the end. */
bool container_name_is_good(const char *name);

/* Makes what the slice has on the host, or changes it to be so. Running containers follow a changed
 * policy. 0, or a negative errno with a fault. -ETIMEDOUT: another process changes the slice, and
 * does not finish. -EEXIST: there is one, and it must be new. */
int container_make(const struct container_places *places, const struct container_slice *slice,
		   struct fault *fault);

/* Removes it, but not its specification. Programs that start in a container that still has it are
 * refused. Whether any run is for the caller to see. -ENOENT, without a fault: there is none. */
int container_remove(const struct container_places *places, const char *name, struct fault *fault);

/* The paths on the host of the slice's policy, of its region and of its lock. */
void container_policy_path(const struct container_places *places, const char *name,
			   char ret_path[PATH_MAX]);
void container_region_path(const struct container_places *places, const char *name,
			   char ret_path[PATH_MAX]);
void container_lock_path(const struct container_places *places, const char *name,
			 char ret_path[PATH_MAX]);

/* A bind mount that a container of the slice needs. */
struct container_mount {
	char host[PATH_MAX];
	const char *container;
	bool writable;
	bool holds_code; /* else it may be mounted noexec */
};

#define CONTAINER_MOUNTS_MAX 7

/* Those of the slice; returns how many. A mount below another comes after it. */
unsigned container_mounts(const struct container_places *places,
			  const struct container_slice *slice,
			  struct container_mount ret_mounts[CONTAINER_MOUNTS_MAX]);

/* Calls each(arg, name) for each slice, in no order, until it returns non-zero; returns that, 0, or
 * a negative errno. No slices are 0, too. */
int container_each(const struct container_places *places, int (*each)(void *arg, const char *name),
		   void *arg);
