/*
 * Scripted faults.
 *
 *   VGPU_SIM_FAULTS   NAME[@N]=RESULT{,…}: the Nth call of that exported function in this process
 *                     (counted from 1; every one without @N) does nothing but return the number
 * RESULT VGPU_SIM_MISSING  NAME{,…}: cuGetProcAddress does not find these. The dynamic linker still
 * does; sim/old/libcuda.so.1 is a library that really lacks some
 *
 * Read once; the rules are constant afterwards but for their counters. Each library looks for its
 * own functions in the same list, so a rule of the other one's is no mistake; a rule that fits
 * neither is reported, for a test with a typing error would pass for the wrong reason.
 */
#include "faults.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	RULES_MAX = 64,
	NAME_MAX_BYTES = 96,
};

struct rule {
	char name[NAME_MAX_BYTES];
	unsigned nth; /* 0: every call */
	int result;
	_Atomic unsigned calls;
};

_Atomic int faults_armed = -1;

static struct rule rules[RULES_MAX]; /* written by faults_read, under once */
static unsigned rule_count;          /* likewise */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool rule_parse(const char *text, size_t length)
{
	struct rule *rule = &rules[rule_count];
	char buffer[2 * NAME_MAX_BYTES], rest;
	int result;
	unsigned nth = 0;

	if (rule_count == RULES_MAX || length >= sizeof buffer)
		return false;
	memcpy(buffer, text, length);
	buffer[length] = '\0';
	if (sscanf(buffer, "%95[A-Za-z0-9_]@%u=%d%c", rule->name, &nth, &result, &rest) != 3 &&
	    sscanf(buffer, "%95[A-Za-z0-9_]=%d%c", rule->name, &result, &rest) != 2)
		return false;
	rule->nth = nth;
	rule->result = result;
	rule_count++;
	/* The other library answers for the names that begin otherwise. */
	bool ours = !strncmp(rule->name, "nvml", 4) == library_exports("nvmlInit_v2");
	return !ours || library_exports(rule->name);
}

static void faults_read(void)
{
	const char *text = getenv("VGPU_SIM_FAULTS");

	while (text && *text) {
		size_t length = strcspn(text, ",");

		if (!rule_parse(text, length))
			fprintf(stderr,
				"vgpu-sim: VGPU_SIM_FAULTS: %.*s is no rule; use "
				"FUNCTION[@N]=RESULT\n",
				(int)length, text);
		text += length + (text[length] == ',');
	}
	atomic_store_explicit(&faults_armed, rule_count > 0, memory_order_release);
}

int faults_due(const char *function)
{
	int result = 0;

	pthread_once(&once, faults_read);
	for (unsigned i = 0; i < rule_count; i++) {
		struct rule *rule = &rules[i];

		if (strcmp(rule->name, function))
			continue;
		unsigned call = atomic_fetch_add(&rule->calls, 1) + 1;
		if (!result && (!rule->nth || rule->nth == call))
			result = rule->result;
	}
	return result;
}

bool faults_missing(const char *function)
{
	const char *text = getenv("VGPU_SIM_MISSING");
	size_t wanted = strlen(function);

	while (text && *text) {
		size_t length = strcspn(text, ",");

		if (length == wanted && !strncmp(text, function, length))
			return true;
		text += length + (text[length] == ',');
	}
	return false;
}
