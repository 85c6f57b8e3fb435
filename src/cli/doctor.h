/*
 * What vgpu doctor's files share. A check says one thing, or several, each a verdict with what was
 * found and, unless all is well, what to do; both are sentences without their full stop.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "elf_file.h"
#include "gpus.h"
#include "slice.h"

enum doctor_verdict { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_WARN, DOCTOR_FAIL };

struct doctor_finding {
	const char *check; /* its name */
	enum doctor_verdict verdict;
	char *found, *advice; /* advice: NULL where the verdict is DOCTOR_OK */
};

struct doctor {
	char **command; /* what might be run; NULL: nothing */
	unsigned count;
	struct doctor_finding *finding;
	const char *check; /* which one is being made */

	bool has_gpus; /* NVML answered: the checks of the machine ask it. Else gpus_fault says why
			  not */
	struct gpus gpus;
	struct gpus_driver driver;
	struct fault gpus_fault;

	bool has_slice; /* what the slice of this process is could be read; else slice_fault */
	struct slice slice;
	struct fault slice_fault;
	bool policy_is_bad; /* which explains that, and has been said */
};

struct doctor_check {
	const char *name;
	void (*make)(struct doctor *doctor);
};

/* Each ends with a NULL name. They are made in this order. */
extern const struct doctor_check doctor_machine[];
extern const struct doctor_check doctor_library[];
extern const struct doctor_check doctor_slice[];
extern const struct doctor_check doctor_assured[];
extern const struct doctor_check doctor_sandbox[];
extern const struct doctor_check doctor_program[]; /* with a command */

/* Says what the check found. */
__attribute__((format(printf, 3, 4))) void
doctor_found(struct doctor *doctor, enum doctor_verdict verdict, const char *format, ...);
/* What to do about what was said last, which was not DOCTOR_OK. */
__attribute__((format(printf, 2, 3))) void doctor_advise(struct doctor *doctor, const char *format,
							 ...);

/* Whether limits hold in this process, or would if they could be read. */
bool doctor_is_limited(const struct doctor *doctor);

/* Whether this process has a namespace ("pid", "user") of its own, not the machine's first. */
bool doctor_in_namespace(const char *kind);

/* A libvgpu.so in this process: its path and version, else false. */
bool doctor_find_loaded(char path[PATH_MAX], char *version, size_t len);

/* Where the loader finds a library: its real path, "" if that cannot be told. False, with the
 * loader's reason: the loader does not find one. */
bool doctor_find_library(const char *name, char ret_path[PATH_MAX], const char **ret_why);

/* Whether libcuda exports functions that may allocate and that vgpu does not know. */
void doctor_check_functions(struct doctor *doctor);

/* Warns of functions of this machine's libcuda that a program is linked with, that may allocate and
 * that vgpu does not know. Says nothing of a program that has none, or where there is no libcuda.
 */
void doctor_check_linked(struct doctor *doctor, const struct elf *elf);

/* "ok", "note", "warn" or "fail": stable, for --json. */
const char *doctor_verdict_name(enum doctor_verdict verdict);

/* All that was found, as one JSON document on stdout: 0, or what to exit with after a line on
 * stderr, which is so where this vgpu was built without a JSON library. */
int doctor_print_json(const struct doctor *doctor);
