/*
 * Scripted faults.
 *
 *   VGPU_SIM_FAULTS   NAME[@N]=RESULT{,…}: the Nth call of that exported function in this process
 *                     (counted from 1; every one without @N) does nothing but return the number
 * RESULT VGPU_SIM_MISSING  NAME{,…}: cuGetProcAddress does not find these. The dynamic linker still
 * does; sim/old/libcuda.so.1 is a library that really lacks some
 *
 *   VGPU_SIM_PARK     NAME[@N][:done]=PATH{,…}: the Nth call of that exported function in this
 * process makes the file PATH and waits until somebody removes it: before it does anything; or,
 *                     with :done, when it has done everything and is about to return, if it is one
 *                     of those that call leave() (driver.c)
 *
 * Read once; the rules are constant afterwards but for their counters. Each library looks for its
 * own functions in the same list, so a rule of the other one's is no mistake; a rule that fits
 * neither is reported, for a test with a typing error would pass for the wrong reason.
 */
#include "faults.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	RULES_MAX = 64,
	NAME_MAX_BYTES = 96,
	PATH_MAX_BYTES = 256,
	POLL_US = 500,
};

struct rule {
	char name[NAME_MAX_BYTES];
	unsigned nth; /* 0: every call */
	int result;
	char path[PATH_MAX_BYTES]; /* where it parks; "": it does not */
	bool done;                 /* it parks when it is about to return */
	_Atomic unsigned calls;
};

_Atomic int faults_armed = -1;

static struct rule rules[RULES_MAX]; /* written by faults_read, under once */
static unsigned rule_count;          /* likewise */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* NAME[@N], or nothing of it. */
static bool name_parse(const char *text, struct rule *rule)
{
	char rest;

	rule->nth = 0;
	return sscanf(text, "%95[A-Za-z0-9_]@%u%c", rule->name, &rule->nth, &rest) == 2 ||
	       sscanf(text, "%95[A-Za-z0-9_]%c", rule->name, &rest) == 1;
}

static bool fault_parse(char *value, struct rule *rule)
{
	char rest;

	rule->path[0] = '\0';
	return sscanf(value, "%d%c", &rule->result, &rest) == 1;
}

static bool park_parse(char *value, struct rule *rule)
{
	rule->result = 0;
	return snprintf(rule->path, sizeof rule->path, "%s", value) < (int)sizeof rule->path &&
	       rule->path[0];
}

static bool rule_parse(const char *text, size_t length, bool parks)
{
	struct rule *rule = &rules[rule_count];
	char buffer[NAME_MAX_BYTES + PATH_MAX_BYTES], *value, *when;

	if (rule_count == RULES_MAX || length >= sizeof buffer)
		return false;
	memcpy(buffer, text, length);
	buffer[length] = '\0';
	value = strchr(buffer, '=');
	if (!value)
		return false;
	*value++ = '\0';
	when = parks ? strstr(buffer, ":done") : NULL;
	rule->done = when && !when[strlen(":done")];
	if (rule->done)
		*when = '\0';
	if (!name_parse(buffer, rule) || !(parks ? park_parse : fault_parse)(value, rule))
		return false;
	rule_count++;
	/* The other library answers for the names that begin otherwise. */
	bool ours = !strncmp(rule->name, "nvml", 4) == library_exports("nvmlInit_v2");
	return !ours || library_exports(rule->name);
}

static void rules_read(const char *variable, bool parks, const char *form)
{
	const char *text = getenv(variable);

	while (text && *text) {
		size_t length = strcspn(text, ",");

		if (!rule_parse(text, length, parks))
			fprintf(stderr, "vgpu-sim: %s: %.*s is no rule; use %s\n", variable,
				(int)length, text, form);
		text += length + (text[length] == ',');
	}
}

static void faults_read(void)
{
	rules_read("VGPU_SIM_FAULTS", false, "FUNCTION[@N]=RESULT");
	rules_read("VGPU_SIM_PARK", true, "FUNCTION[@N][:done]=PATH");
	atomic_store_explicit(&faults_armed, rule_count > 0, memory_order_release);
}

static void park(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	if (fd >= 0)
		close(fd);
	while (!access(path, F_OK))
		usleep(POLL_US);
}

/* Whether the rule is about this call, which is counted. */
static bool rule_fits(struct rule *rule, const char *function, bool done)
{
	if (rule->done != done || strcmp(rule->name, function))
		return false;
	unsigned call = atomic_fetch_add(&rule->calls, 1) + 1;
	return !rule->nth || rule->nth == call;
}

int faults_due(const char *function)
{
	int result = 0;

	pthread_once(&once, faults_read);
	for (unsigned i = 0; i < rule_count; i++) {
		if (!rule_fits(&rules[i], function, false))
			continue;
		if (rules[i].path[0])
			park(rules[i].path);
		if (!result)
			result = rules[i].result;
	}
	return result;
}

void faults_done(const char *function)
{
	for (unsigned i = 0; i < rule_count; i++) {
		if (rule_fits(&rules[i], function, true))
			park(rules[i].path);
	}
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
