/*
 * The variable is read as the driver reads it: driver 580 was tested with 60 values on two H200. It
 * is a list of numbers. If its first entry begins with "GPU-" or "MIG-", it is a list of UUIDs, or
 * of prefixes that only one UUID has. An entry of the other kind ends the list. A number may have
 * blanks before it and anything after it ("1x" is 1), and is cut to 32 bits. A UUID may have
 * nothing before it. Text after its 36 characters does not matter, nor does the case of its digits.
 * The list ends at the first entry that names no device: unknown, ambiguous, negative, empty. So a
 * device outside the slice ends it, like one that the machine has not.
 *
 * The answer has whole UUIDs alone, which mean the same whatever CUDA_DEVICE_ORDER says. Numbers
 * are put in NVML's order, by bus, which is CUDA's for CUDA_DEVICE_ORDER=PCI_BUS_ID and for cards
 * that are alike. With the default, FASTEST_FIRST, the driver may number cards of different models
 * otherwise. It keeps its own order only if all of the machine's cards are in the slice.
 */
#include "visible.h"

#include <string.h>
#include <strings.h>

#include "slice_internal.h"

#define KIND_CHARS 4 /* "GPU-" */
#define UUID_CHARS 40

enum kind { NUMBERS, UUIDS };

/* The policy's devices as numbers count them, and how many. */
struct numbered {
	unsigned count;
	unsigned device[VGPU_DEVICES_MAX];
};

static enum kind kind_of(const char *asked)
{
	return strncmp(asked, "GPU-", KIND_CHARS) == 0 || strncmp(asked, "MIG-", KIND_CHARS) == 0
		       ? UUIDS
		       : NUMBERS;
}

/* As strtol reads it, cut to an int; -1 where there is none, or one that is negative or too long.
 */
static int parse_number(const char *entry)
{
	bool minus = false;
	uint64_t number = 0;

	while (*entry == ' ' || (*entry >= '\t' && *entry <= '\r'))
		entry++;
	if (*entry == '+' || *entry == '-')
		minus = *entry++ == '-';
	if (*entry < '0' || *entry > '9')
		return -1;
	for (; *entry >= '0' && *entry <= '9'; entry++) {
		if (number > (INT64_MAX - 9) / 10)
			return -1;
		number = number * 10 + (uint64_t)(*entry - '0');
	}
	return minus && number > 0 ? -1 : (int)(uint32_t)number;
}

static int find_number(const struct numbered *numbered, const char *entry)
{
	int number = parse_number(entry);

	return number >= 0 && (unsigned)number < numbered->count ? (int)numbered->device[number]
								 : -1;
}

static int find_uuid(const struct policy *policy, const char *entry)
{
	size_t len = strcspn(entry, ", ");
	int found = -1;

	if (kind_of(entry) != UUIDS || len == KIND_CHARS)
		return -1;
	if (len > UUID_CHARS)
		len = UUID_CHARS;
	for (unsigned i = 0; i < policy->device_count; i++) {
		if (strncasecmp(policy->device[i].uuid + KIND_CHARS, entry + KIND_CHARS,
				len - KIND_CHARS) != 0)
			continue;
		if (found >= 0)
			return -1;
		found = (int)i;
	}
	return found;
}

static bool is_mig(const struct policy *policy, unsigned device)
{
	return strncmp(policy->device[device].uuid, "MIG-", KIND_CHARS) == 0;
}

/* The cards by their places, then the MIG instances. */
static void number(const struct policy *policy, const struct visible_order *order,
		   struct numbered *ret_numbered)
{
	struct numbered numbered = {.count = 0};

	for (unsigned place = 0; place < order->gpu_count; place++)
		for (unsigned i = 0; i < policy->device_count; i++)
			if (order->place[i] == (int)place)
				numbered.device[numbered.count++] = i;
	for (unsigned i = 0; i < policy->device_count; i++)
		if (order->gpu_count == 0 || (order->place[i] < 0 && is_mig(policy, i)))
			numbered.device[numbered.count++] = i;
	*ret_numbered = numbered;
}

/* Whether the slice has all of the machine's cards. */
static bool has_all(const struct policy *policy, const struct visible_order *order)
{
	unsigned found = 0;

	for (unsigned i = 0; i < policy->device_count; i++)
		found += order->place[i] >= 0;
	return order->gpu_count > 0 && found == order->gpu_count;
}

bool visible_needs_order(const struct policy *policy, const char *asked)
{
	return policy->device_count > 1 &&
	       (!asked || (kind_of(asked) == NUMBERS && parse_number(asked) >= 0));
}

/* The list in the making. */
struct list {
	char *text;
	size_t len;
	uint32_t seen; /* devices in it */
};

/* False: it was there already, and nothing more is to be added. */
static bool add(struct list *list, const struct policy *policy, unsigned device)
{
	const char *uuid = policy->device[device].uuid;
	size_t len = strlen(uuid);
	bool again = list->seen & 1u << device;

	if (list->len + 1 + len >= VISIBLE_LIST_LEN)
		return false;
	if (list->len > 0)
		list->text[list->len++] = ',';
	memcpy(list->text + list->len, uuid, len + 1);
	list->len += len;
	list->seen |= 1u << device;
	return !again;
}

static void add_all(struct list *list, const struct policy *policy, const struct numbered *numbered)
{
	for (unsigned i = 0; i < numbered->count; i++)
		add(list, policy, numbered->device[i]);
}

static void add_asked(struct list *list, const struct policy *policy,
		      const struct numbered *numbered, const char *asked)
{
	enum kind kind = kind_of(asked);

	for (;;) {
		int device =
			kind == UUIDS ? find_uuid(policy, asked) : find_number(numbered, asked);

		if (device < 0 || !add(list, policy, (unsigned)device))
			return;
		asked += strcspn(asked, ",");
		if (*asked++ == '\0')
			return;
	}
}

bool visible_compose(const struct policy *policy, const char *asked,
		     const struct visible_order *order, char ret_list[VISIBLE_LIST_LEN])
{
	struct list list = {.text = ret_list};
	struct numbered numbered;

	if (has_all(policy, order))
		return false;
	number(policy, order, &numbered);
	ret_list[0] = '\0';
	if (asked)
		add_asked(&list, policy, &numbered, asked);
	else
		add_all(&list, policy, &numbered);
	return true;
}
