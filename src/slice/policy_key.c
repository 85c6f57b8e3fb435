/*
 * The keys of a policy: which file may have each, and what its value may be. A value that does not
 * parse is refused with the cure. Values that the program `vgpu` takes or shows, too, have a parser
 * and a name of their own (policy.h).
 */
#include "policy_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "size.h"
#include "slice_internal.h"

/* A key: which files have it, and what takes its value. */
struct key {
	const char *name;
	bool of_device;
	int (*set)(const struct policy_entry *entry, const char *value,
		   const struct policy_place *place, struct fault *fault);
};

static int bad_value(const struct policy_place *place, const char *value, const char *cure,
		     struct fault *fault)
{
	char quoted[SLICE_QUOTED_LEN];

	return fault_set(fault, -EINVAL, "%s, line %u: \"%s\" %s", place->file, place->line,
			 slice_quote(value, quoted), cure);
}

static int set_memory(const struct policy_entry *entry, const char *value,
		      const struct policy_place *place, struct fault *fault)
{
	uint64_t bytes = 0;

	if (strcmp(value, POLICY_UNLIMITED) == 0)
		return 0;
	if (size_parse(value, &bytes))
		return bad_value(place, value,
				 "is no size: write bytes or a number with k, m or g, such as 8G, "
				 "or " POLICY_UNLIMITED,
				 fault);
	if (bytes == 0)
		return bad_value(place, value,
				 "would be no memory at all: for no limit, write " POLICY_UNLIMITED,
				 fault);
	entry->policy->device[entry->device].memory_bytes = bytes;
	return 0;
}

bool policy_cores_parse(const char *text, struct policy_cores *ret_cores)
{
	const char *dash = strchr(text, '-');
	char first[32];
	uint64_t pct, most_pct;

	if (snprintf(first, sizeof(first), "%.*s", (int)(dash ? dash - text : (long)strlen(text)),
		     text) >= (int)sizeof(first))
		return false;
	if (percent_parse(first, 100, &pct) || pct == 0)
		return false;
	most_pct = pct;
	if (dash && (percent_parse(dash + 1, 100, &most_pct) || most_pct < pct))
		return false;
	ret_cores->pct = (unsigned)pct;
	ret_cores->most_pct = most_pct > pct ? (unsigned)most_pct : 0;
	return true;
}

char *policy_cores_name(unsigned pct, unsigned most_pct, char *buf, size_t len)
{
	if (most_pct)
		snprintf(buf, len, "%u-%u", pct, most_pct);
	else
		snprintf(buf, len, "%u", pct);
	return buf;
}

static int set_cores(const struct policy_entry *entry, const char *value,
		     const struct policy_place *place, struct fault *fault)
{
	struct policy_device *device = &entry->policy->device[entry->device];
	struct policy_cores cores;

	if (strcmp(value, POLICY_UNLIMITED) == 0)
		return 0;
	if (!policy_cores_parse(value, &cores))
		return bad_value(place, value,
				 "is no share of the GPU's time: write a percentage from 1 to 100, "
				 "or two with a \"-\" between them, what is assured and the most, "
				 "or " POLICY_UNLIMITED,
				 fault);
	device->cores_pct = cores.pct;
	device->cores_most_pct = cores.most_pct;
	return 0;
}

bool policy_burst_parse(const char *text, uint64_t *ret_burst_ns)
{
	uint64_t ns;

	if (time_parse(text, VGPU_BURST_MAX_NS, &ns))
		return false;
	*ret_burst_ns = ns ? ns : POLICY_NO_BURST;
	return true;
}

char *policy_burst_name(uint64_t burst_ns, char *buf, size_t len)
{
	if (burst_ns)
		return time_format(burst_ns == POLICY_NO_BURST ? 0 : burst_ns, buf, len);
	snprintf(buf, len, "default");
	return buf;
}

static int set_burst(const struct policy_entry *entry, const char *value,
		     const struct policy_place *place, struct fault *fault)
{
	if (policy_burst_parse(value, &entry->policy->device[entry->device].burst_ns))
		return 0;
	return bad_value(place, value,
			 "is no time that a slice may save: write 0 to 1s, such as 25ms, or leave "
			 "the line out",
			 fault);
}

static int set_region(const struct policy_entry *entry, const char *value,
		      const struct policy_place *place, struct fault *fault)
{
	size_t len = strlen(value);

	if (value[0] != '/' || len >= sizeof(entry->policy->region_path))
		return bad_value(place, value,
				 "is not where a region can lie: write the file's absolute path",
				 fault);
	memcpy(entry->policy->region_path, value, len + 1);
	return 0;
}

static int set_name(const struct policy_entry *entry, const char *value,
		    const struct policy_place *place, struct fault *fault)
{
	size_t len = strlen(value);

	if (len == 0 || len >= sizeof(entry->policy->name))
		return bad_value(place, value, "is no name for a slice: write 1 to 63 bytes",
				 fault);
	memcpy(entry->policy->name, value, len + 1);
	return 0;
}

static int set_oversubscribe(const struct policy_entry *entry, const char *value,
			     const struct policy_place *place, struct fault *fault)
{
	int word = slice_word(value);

	if (word < 0)
		return bad_value(place, value, "is no answer: write yes or no", fault);
	entry->policy->oversubscribe = word;
	return 0;
}

const char *policy_gang_word(const struct policy_gang *gang)
{
	switch (gang->rule) {
	case POLICY_GANG_YES:
		return "yes";
	case POLICY_GANG_NO:
		return "no";
	case POLICY_GANG_NAMED:
		return gang->name;
	case POLICY_GANG_FOUND:
		break;
	}
	return "found";
}

static bool names_gang(const char *word)
{
	static const char *const taken[] = {"yes", "no", "true", "false", "found"};
	size_t len = strlen(word);

	for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++)
		if (strcasecmp(word, taken[i]) == 0)
			return false;
	return len > 0 && len <= POLICY_GANG_MAX && word[0] != '.' &&
	       strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
			    "0123456789._-") == len;
}

bool policy_gang_parse(const char *word, struct policy_gang *ret_gang)
{
	struct policy_gang gang = {POLICY_GANG_NAMED, ""};

	if (strcmp(word, "yes") == 0)
		gang.rule = POLICY_GANG_YES;
	else if (strcmp(word, "no") == 0)
		gang.rule = POLICY_GANG_NO;
	else if (names_gang(word))
		memcpy(gang.name, word, strlen(word));
	else
		return false;
	*ret_gang = gang;
	return true;
}

bool policy_gang_equals(const struct policy_gang *gang, const struct policy_gang *other)
{
	return gang->rule == other->rule && strcmp(gang->name, other->name) == 0;
}

static int set_gang(const struct policy_entry *entry, const char *value,
		    const struct policy_place *place, struct fault *fault)
{
	if (policy_gang_parse(value, &entry->policy->gang))
		return 0;
	return bad_value(place, value,
			 "does not say whether the slice is a gang: write yes or no, a gang's "
			 "name (1 to 64 letters, digits, \".\", \"_\" and \"-\", no \".\" first), "
			 "or leave the line out, and gangs are found",
			 fault);
}

static int set_group(const struct policy_entry *entry, const char *value,
		     const struct policy_place *place, struct fault *fault)
{
	uint64_t group;

	if (number_parse(value, POLICY_GROUP_MAX, &group))
		return bad_value(place, value, "is no group: write its number", fault);
	entry->policy->group = (unsigned)group;
	entry->policy->has_group = true;
	return 0;
}

/* The one that a GPU's file must have comes first. */
static const struct key keys[] = {
	{"memory", true, set_memory}, {"cores", true, set_cores},
	{"burst", true, set_burst},   {"region", false, set_region},
	{"name", false, set_name},    {"oversubscribe", false, set_oversubscribe},
	{"gang", false, set_gang},    {"group", false, set_group},
};

#define KEY_COUNT   (sizeof(keys) / sizeof(keys[0]))
#define SEEN_MEMORY 1u /* its bit in `seen` */

int policy_set_key(struct policy_entry *entry, const char *name, const char *value,
		   const struct policy_place *place, struct fault *fault)
{
	char quoted[SLICE_QUOTED_LEN];
	bool of_device = entry->device >= 0;

	for (unsigned i = 0; i < KEY_COUNT; i++) {
		if (keys[i].of_device != of_device || strcmp(keys[i].name, name) != 0)
			continue;
		if (entry->seen & 1u << i)
			return fault_set(fault, -EINVAL,
					 "%s, line %u: \"%s\" is there a second time: leave one",
					 place->file, place->line, name);
		entry->seen |= 1u << i;
		return keys[i].set(entry, value, place, fault);
	}
	return fault_set(fault, -EINVAL, "%s, line %u: \"%s\" means nothing here: write %s",
			 place->file, place->line, slice_quote(name, quoted),
			 of_device ? "memory, cores or burst"
				   : "region, name, oversubscribe, gang or group");
}

bool policy_has_memory(const struct policy_entry *entry)
{
	return entry->seen & SEEN_MEMORY;
}
