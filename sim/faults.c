/*
 * Scripted faults.
 *
 *   VGPU_SIM_FAULTS   NAME[@N]=RESULT{,…}: the Nth call of that exported function in this process
 *                     (counted from 1; each call, without @N) returns that number and does nothing
 *                     else
 *   VGPU_SIM_MISSING  NAME{,…}: cuGetProcAddress does not find these functions. The dynamic linker
 *                     does; sim/old/libcuda.so.1 is a library that really lacks some
 *   VGPU_SIM_PARK     NAME[@N][:done]=PATH{,…}: the Nth call of that exported function in this
 *                     process makes the file PATH, and waits until the file is removed. It waits
 *                     before it does anything; or, with :done, when it has done everything and is
 *                     about to return. :done is known to functions that call leave() (driver.c):
 *                     those that take or give back memory, or keep it. A call that they refuse for
 *                     its arguments does not wait
 *
 *   VGPU_SIM_DELAY    NAME[@N][:done]=US{,…}: likewise, the call sleeps for so many microseconds
 *
 * The variables are read once; after that only the counters of rules change. Both libraries read
 * the same lists, so a rule for a function of the other library is no error. A rule for a function
 * that neither library has is reported: a test with such a typing error would pass for the wrong
 * reason.
 */
#include "faults.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	RULES_MAX = 128,
	NAME_MAX_BYTES = 96,
	PATH_MAX_BYTES = 256,
	POLL_US = 500,
};

struct rule {
	char name[NAME_MAX_BYTES];
	unsigned nth; /* 0: every call */
	int result;
	char path[PATH_MAX_BYTES]; /* the file of VGPU_SIM_PARK; "": the call does not wait */
	unsigned delay_us;         /* VGPU_SIM_DELAY */
	bool done;                 /* the call waits when it is about to return */
	_Atomic unsigned calls;
};

_Atomic int faults_armed = -1;

static struct rule rules[RULES_MAX]; /* written by faults_read, under once */
static unsigned rule_count;          /* likewise */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Reads NAME[@N] into the rule. False: the text is something else, and the rule is unchanged. */
static bool name_parse(const char *text, struct rule *rule)
{
	char rest;

	rule->nth = 0;
	return sscanf(text, "%95[A-Za-z0-9_]@%u%c", rule->name, &rule->nth, &rest) == 2 ||
	       sscanf(text, "%95[A-Za-z0-9_]%c", rule->name, &rest) == 1;
}

static bool fault_parse(const char *value, struct rule *rule)
{
	char rest;

	return sscanf(value, "%d%c", &rule->result, &rest) == 1;
}

static bool delay_parse(const char *value, struct rule *rule)
{
	char rest;

	return sscanf(value, "%u%c", &rule->delay_us, &rest) == 1;
}

static bool park_parse(const char *value, struct rule *rule)
{
	return snprintf(rule->path, sizeof rule->path, "%s", value) < (int)sizeof rule->path &&
	       rule->path[0];
}

typedef bool value_parse(const char *value, struct rule *rule);

static bool rule_parse(const char *text, size_t length, value_parse *parse)
{
	struct rule *rule = &rules[rule_count];
	char buffer[NAME_MAX_BYTES + PATH_MAX_BYTES], *value, *when;

	if (rule_count == RULES_MAX || length >= sizeof buffer)
		return false;
	*rule = (struct rule){.path = ""};
	memcpy(buffer, text, length);
	buffer[length] = '\0';
	value = strchr(buffer, '=');
	if (!value)
		return false;
	*value++ = '\0';
	when = parse == fault_parse ? NULL : strstr(buffer, ":done");
	rule->done = when && !when[strlen(":done")];
	if (rule->done)
		*when = '\0';
	if (!name_parse(buffer, rule) || !parse(value, rule))
		return false;
	rule_count++;
	/* A name with another beginning is the other library's to check. */
	bool ours = !strncmp(rule->name, "nvml", 4) == library_exports("nvmlInit_v2");
	return !ours || library_exports(rule->name);
}

static void rules_read(const char *variable, value_parse *parse, const char *form)
{
	const char *text = getenv(variable);

	while (text && *text) {
		size_t length = strcspn(text, ",");

		if (!rule_parse(text, length, parse))
			fprintf(stderr, "vgpu-sim: %s: %.*s is no rule; use %s\n", variable,
				(int)length, text, form);
		text += length + (text[length] == ',');
	}
}

static void faults_read(void)
{
	rules_read("VGPU_SIM_FAULTS", fault_parse, "FUNCTION[@N]=RESULT");
	rules_read("VGPU_SIM_PARK", park_parse, "FUNCTION[@N][:done]=PATH");
	rules_read("VGPU_SIM_DELAY", delay_parse, "FUNCTION[@N][:done]=US");
	atomic_store_explicit(&faults_armed, rule_count > 0, memory_order_release);
}

/* Has the call wait as the rule says. */
static void wait_for(const struct rule *rule)
{
	if (rule->delay_us)
		usleep(rule->delay_us);
	if (!rule->path[0])
		return;
	int fd = open(rule->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
	while (!access(rule->path, F_OK))
		usleep(POLL_US);
}

/* Whether the rule applies to this call. Counts the call. */
static bool rule_fits(struct rule *rule, const char *function, bool done)
{
	if (rule->done != done || strcmp(rule->name, function))
		return false;
	unsigned call = atomic_fetch_add(&rule->calls, 1) + 1;
	return !rule->nth || rule->nth == call;
}

/* Collects the rules that apply to this call. All rules count it before one of them parks it. */
static unsigned rules_of_call(const char *function, bool done, struct rule *ret_rules[RULES_MAX])
{
	unsigned count = 0;

	for (unsigned i = 0; i < rule_count; i++)
		if (rule_fits(&rules[i], function, done))
			ret_rules[count++] = &rules[i];
	return count;
}

int faults_due(const char *function)
{
	struct rule *fitting[RULES_MAX];
	unsigned count;
	int result = 0;

	pthread_once(&once, faults_read);
	count = rules_of_call(function, false, fitting);
	for (unsigned i = 0; i < count; i++) {
		wait_for(fitting[i]);
		if (!result)
			result = fitting[i]->result;
	}
	return result;
}

void faults_done(const char *function)
{
	struct rule *fitting[RULES_MAX];
	unsigned count = rules_of_call(function, true, fitting);

	for (unsigned i = 0; i < count; i++)
		wait_for(fitting[i]);
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
