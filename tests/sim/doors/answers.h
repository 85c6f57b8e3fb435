/* The questions of answers.c and of its plugin. */
#pragma once

#include <stdbool.h>

#include "check.h"
#include "driver.h"
#include "export.h"
#include "place.h"
#include "ways.h"

static const char *const names_not_ours[] = {
	"printf",         "malloc",         "dlclose",
	"dlerror",        "pthread_create", "cuBogusThing",
	"cudnnCreate",    "nvBogusThing",   "cuStreamGetFlags",
	"cuMemFreeHost",  "cuGetErrorName", "cuNoSuchFunction",
	"cuMemAlloc_v99", "dlnosuch",       "",
};

static inline void answer_print(const char *label, const char *name, void *answer)
{
	const char *error = dlerror();

	print_place(label, name, answer);
	printf("    %s\n", error ? error : "no error");
}

/* Asks from the program or plugin that includes this header, or from the handle if it is not
 * NULL. */
static inline void answers_print(const char *who, void *handle)
{
	char label[128];

	for (size_t i = 0; i < sizeof(names_not_ours) / sizeof(names_not_ours[0]); i++) {
		const char *name = names_not_ours[i];

		if (handle) {
			answer_print(who, name, dlsym(handle, name));
			continue;
		}
		snprintf(label, sizeof(label), "default of the %s", who);
		answer_print(label, name, dlsym(RTLD_DEFAULT, name));
		snprintf(label, sizeof(label), "next of the %s", who);
		answer_print(label, name, dlsym(RTLD_NEXT, name));
		snprintf(label, sizeof(label), "versioned, next of the %s", who);
		answer_print(label, name, dlvsym(RTLD_NEXT, name, LIBC_BASE));
		snprintf(label, sizeof(label), "program, from the %s", who);
		answer_print(label, name, dlsym(opened(NULL, RTLD_LAZY), name));
	}
}

/* Asks for versions. The driver's symbols have none, so dlvsym finds them in no version. The
 * version "" is left out, because glibc before 2.41 crashes on it, with and without the
 * library. */
static inline void answers_print_versions(void)
{
	static const char *const names[] = {"cuMemAlloc_v2", "cuInit", "cuStreamGetFlags"};
	static const char *const versions[] = {"NONE", LIBC_BASE, "libcuda.so.1"};
	void *const handles[] = {RTLD_DEFAULT, RTLD_NEXT, driver_opened(), opened(NULL, RTLD_LAZY)};
	char label[128];

	for (size_t i = 0; i < 4 * 3 * 3; i++) {
		const char *name = names[i % 3], *version = versions[i / 3 % 3];

		snprintf(label, sizeof(label), "handle %zu, version %s", i / 9, version);
		print_place(label, name, dlvsym(handles[i / 9], name, version));
		printf("    %s\n", dlerror() ? "an error" : "no error");
	}
}

static inline void answers_print_procaddress(void)
{
	static const struct {
		const char *symbol;
		int version;
		cuuint64_t flags;
	} questions[] = {
		{"cuNoSuchFunction", 13000, 0},
		{"cuMemAllocManaged", 5000, 0},
		{"cuMemAlloc", 13000, 0},
		{"cuMemAlloc", 13000, 3},
		{"cuMemAlloc_v2", 13000, 0},
		{"cuInit", 13000, 4},
		{"", 13000, 0},
		{NULL, 13000, 0},
		{"cuCtxCreate", 3010, 0},
		{"cuStreamGetFlags", 13000, 2},
	};

	for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++) {
		CUdriverProcAddressQueryResult status = 77;
		void *got = &status;
		CUresult old, new;

		new = cuGetProcAddress_v2(questions[i].symbol, &got, questions[i].version,
					  questions[i].flags, &status);
		old = cuGetProcAddress(questions[i].symbol, &got, questions[i].version,
				       questions[i].flags);
		printf("question %zu: %d %d, status %u, %s\n", i, new, old, status,
		       got == &status ? "untouched"
		       : got          ? "something"
				      : "nothing");
	}
	printf("no room for an answer: %d\n", cuGetProcAddress("cuInit", NULL, 13000, 0));
}
