/*
 * vgpu doctor: declarations that the files of the command share.
 *
 * A check has one or more findings. A finding is a verdict, a sentence that says what was found
 * and, unless the verdict is DOCTOR_OK, advice: a sentence that says what to do. Both sentences
 * have no full stop at the end.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "elf_file.h"
#include "gpus.h"
#include "slice.h"

enum doctor_verdict { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_WARN, DOCTOR_FAIL };

struct doctor_finding {
	const char *check; /* the name of the check */
	enum doctor_verdict verdict;
	char *found, *advice; /* advice is NULL if the verdict is DOCTOR_OK */
};

/* The state of one run of vgpu doctor. */
struct doctor {
	char **command; /* COMMAND and its arguments; NULL: none was given */
	unsigned count; /* entries of finding */
	struct doctor_finding *finding;
	const char *check; /* the name of the check that is being made */

	/* NVML's answers, which the checks of the machine fill in. If has_gpus is false, gpus_fault
	 * has the reason. */
	bool has_gpus;
	struct gpus gpus;
	struct gpus_driver driver;
	struct fault gpus_fault;

	/* The limits of this process. If has_slice is false, they could not be read, and
	 * slice_fault has the reason. policy_is_bad: a finding about the policy already gives the
	 * reason. */
	bool has_slice;
	struct slice slice;
	struct fault slice_fault;
	bool policy_is_bad;
};

/* A check. make calls doctor_found once or more often, and may not call it at all. */
struct doctor_check {
	const char *name;
	void (*make)(struct doctor *doctor);
};

/* The checks by subject, in the order in which they are made. A NULL name ends each table. */
extern const struct doctor_check doctor_machine[];
extern const struct doctor_check doctor_library[];
extern const struct doctor_check doctor_slice[];
extern const struct doctor_check doctor_assured[];
extern const struct doctor_check doctor_sandbox[];
extern const struct doctor_check doctor_program[]; /* only if there is a COMMAND */

/* Adds a finding of the current check. */
__attribute__((format(printf, 3, 4))) void
doctor_found(struct doctor *doctor, enum doctor_verdict verdict, const char *format, ...);
/* Adds the advice to the last finding, whose verdict is not DOCTOR_OK. */
__attribute__((format(printf, 2, 3))) void doctor_advise(struct doctor *doctor, const char *format,
							 ...);

/* Whether limits apply to this process. Also true if they could not be read. */
bool doctor_is_limited(const struct doctor *doctor);

/* Whether this process is in a namespace of that kind ("pid" or "user") other than the
 * machine's initial one. */
bool doctor_in_namespace(const char *kind);

/* Finds a libvgpu.so that is loaded into this process, with its version, of which version holds
 * len bytes. False: there is none. */
bool doctor_find_loaded(char path[PATH_MAX], char *version, size_t len);

/* Finds the file that the loader loads for the library `name`. ret_path: its real path; "": the
 * path is not known. Returns false, with the loader's message in *ret_why, if the loader finds
 * none. */
bool doctor_find_library(const char *name, char ret_path[PATH_MAX], const char **ret_why);

/* Checks whether libcuda exports functions that may allocate and that vgpu does not know. */
void doctor_check_functions(struct doctor *doctor);

/* Warns if the program is linked with functions of this machine's libcuda that may allocate and
 * that vgpu does not know. Without such functions, or without libcuda, there is no finding. */
void doctor_check_linked(struct doctor *doctor, const struct elf *elf);

/* Returns "ok", "note", "warn" or "fail". --json prints these names, so they never change. */
const char *doctor_verdict_name(enum doctor_verdict verdict);

/* Prints the findings on stdout as one JSON document. Returns 0, or the exit status after a
 * line on stderr. A vgpu that was built without json-c always fails. */
int doctor_print_json(const struct doctor *doctor);
