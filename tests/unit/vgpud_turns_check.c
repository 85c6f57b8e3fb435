/* Weights of entries in a file of turns whose key is of no region that was read. */
#include <string.h>

#include "turns_check.h"
#include "unit.h"
#include "unread.h"

#define GPU           "GPU-a"
#define KEY           ((uint64_t)7)
#define WEIGHT        50
#define UNKNOWN_LOOKS 3 /* after which a key that no slice has counts as unknown */

static struct vgpu_turns_file turns;
static struct turns_server server;
static struct overview_device devices[1] = {{.seen.uuid = GPU}};
static struct overview_slice slices[1] = {{.key = KEY, .device_count = 1, .device = devices}};
static struct track_device tracked_devices[1];
static struct track_slice tracked[1] = {{.device_count = 1, .device = tracked_devices}};
static struct overview overview = {.slice = slices};
static struct track track = {.slice = tracked};
static struct events events;

/* In the place of the functions of other files. */
static const struct slices_one one = {.name = "s", .region_path = "/region"};
static const struct unread_region region = {.one = &one, .why = "a reason"};
static unsigned unread_pcts[2]; /* quotas of the regions that were not read */
static unsigned unread_count;
static bool no_memory, is_dead;
static unsigned lists, lines;

void unread_list(const struct overview *seen, struct unread *ret_unread)
{
	(void)seen;
	lists++;
	*ret_unread = (struct unread){.failed = no_memory};
}

void unread_free(struct unread *unread)
{
	(void)unread;
}

const struct unread_region *unread_next(const struct unread *unread, uint64_t key, const char *uuid,
					unsigned *at, unsigned *ret_pct)
{
	(void)unread;
	assert_int_equal(key, KEY);
	assert_string_equal(uuid, GPU);
	if (*at == unread_count)
		return NULL;
	*ret_pct = unread_pcts[(*at)++];
	return &region;
}

int __wrap_sys_bytes_are_locked(int fd, uint64_t offset, uint64_t count);
void __wrap_say(int level, const char *format, ...);

int __wrap_sys_bytes_are_locked(int fd, uint64_t offset, uint64_t count)
{
	(void)fd, (void)count;
	return offset == VGPU_TURNS_LOCK_OFFSET && !is_dead;
}

void __wrap_say(int level, const char *format, ...)
{
	(void)level, (void)format;
	lines++;
}

int turns_server_refuse(struct turns_server *to, struct turns_file *file,
			const struct slices_one *slice, struct fault *fault)
{
	(void)to, (void)file, (void)slice, (void)fault;
	fail();
	return -1;
}

struct json_object *event_of(const struct slices_one *slice, const char *device_uuid)
{
	(void)slice, (void)device_uuid;
	return NULL;
}

void event_add_number(struct json_object *event, const char *name, uint64_t number)
{
	(void)event, (void)name, (void)number;
}

void events_tell(struct events *to, enum event_kind kind, struct json_object *event,
		 const char *format, ...)
{
	(void)to, (void)kind, (void)event, (void)format;
	fail();
}

static int begin(void **state)
{
	(void)state;
	memset(&server, 0, sizeof(server));
	memset(&turns, 0, sizeof(turns));
	server.store.count = 1;
	server.store.file[0].at = &turns;
	strcpy(server.store.file[0].uuid, GPU);
	turns.slice[0].key = KEY;
	turns.slice[0].assured_pct = 1;
	overview.count = track.count = 0;
	unread_count = lists = lines = 0;
	no_memory = is_dead = false;
	return 0;
}

#define CHECK_TEST(name) UNIT_TEST_AROUND(name, begin, NULL)

/* So many regions, with these quotas, were not read. */
static void leave_unread(unsigned count, unsigned first_pct, unsigned second_pct)
{
	unread_count = count;
	unread_pcts[0] = first_pct;
	unread_pcts[1] = second_pct;
}

/* The entry's weight after a look at which it was `weight`. */
static unsigned look_at(unsigned weight)
{
	turns.slice[0].weight = weight;
	turns_check_look(&server, &overview, &track, &events);
	return turns.slice[0].weight;
}

static unsigned look(void)
{
	return look_at(WEIGHT);
}

CHECK_TEST(test_unknown)
{
	for (unsigned i = 1; i < UNKNOWN_LOOKS; i++)
		assert_int_equal(look(), WEIGHT);
	for (unsigned i = 0; i < 600; i++) /* more than the count of looks can have */
		assert_int_equal(look(), 1);
	assert_int_equal(lines, 0);
}

/* The count of looks begins again after a look at which the entry was dead, known, or perhaps of
 * a region that was not read. */
CHECK_TEST(test_unknown_again)
{
	for (unsigned i = 0; i < 4; i++) {
		for (unsigned j = 1; j < UNKNOWN_LOOKS; j++)
			assert_int_equal(look(), WEIGHT);
		is_dead = i == 0 || i == 3;
		overview.count = track.count = i == 1;
		no_memory = i == 2;
		assert_int_equal(look(), WEIGHT);
		is_dead = no_memory = false;
		overview.count = track.count = 0;
	}
}

/* The entry may be of the region with the larger quota. */
CHECK_TEST(test_quota_of_unread)
{
	leave_unread(2, 30, 20);
	assert_int_equal(look(), 30);
	assert_int_equal(look_at(25), 25);
	leave_unread(2, 20, 30);
	assert_int_equal(look(), 30);
	assert_int_equal(look_at(0), 1);
	assert_int_equal(server.store.file[0].unchecked, 0);
	assert_int_equal(lines, 0);
}

/* One of the regions has no quota, so any weight may be right. */
CHECK_TEST(test_unread_without_quota)
{
	for (unsigned i = 0; i < 2; i++) {
		leave_unread(2, 30, 0);
		for (unsigned j = 0; j < 2 * UNKNOWN_LOOKS; j++) {
			assert_int_equal(look(), WEIGHT);
			assert_int_equal(server.store.file[0].unchecked, 1);
		}
		assert_int_equal(lines, i + 1); /* once, until all weights were checked */
		leave_unread(1, 60, 0);
		assert_int_equal(look(), WEIGHT);
		assert_int_equal(server.store.file[0].unchecked, 0);
	}
}

/* Without memory for the list of regions, an entry may be of any. */
CHECK_TEST(test_no_list)
{
	no_memory = true;
	for (unsigned i = 0; i < 2 * UNKNOWN_LOOKS; i++)
		assert_int_equal(look(), WEIGHT);
	assert_int_equal(server.store.file[0].unchecked, 1);
}

/* Nothing is checked while track is not the overview's. */
CHECK_TEST(test_track_of_another_look)
{
	track.count = 1;
	for (unsigned i = 0; i < 2 * UNKNOWN_LOOKS; i++)
		assert_int_equal(look(), WEIGHT);
	assert_int_equal(lists, 0);
}

CHECK_TEST(test_no_files)
{
	server.store.count = 0;
	look();
	assert_int_equal(lists, 0);
}
