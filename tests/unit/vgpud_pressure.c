/* Memory pressure while NVML does not tell how much memory a GPU has. */
#include <stdio.h>
#include <string.h>

#include "pressure.h"
#include "size.h"
#include "unit.h"

#define BLIND_LOOKS 10 /* for which the last total counts */

/* In the place of the functions of other files. */
static uint64_t held_bytes;
static struct vgpu_turns_file turns;
static struct turns_file file = {.at = &turns};
static char told[256]; /* the last event's sentence, "": none since told was cleared */

uint64_t __wrap_overview_held_bytes(const struct overview *overview, const char *uuid);

uint64_t __wrap_overview_held_bytes(const struct overview *overview, const char *uuid)
{
	(void)overview, (void)uuid;
	return held_bytes;
}

struct turns_file *turns_store_find(struct turns_store *store, const char *uuid)
{
	(void)store, (void)uuid;
	return &file;
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

void events_tell(struct events *events, enum event_kind kind, struct json_object *event,
		 const char *format, ...)
{
	va_list args;

	(void)events, (void)kind, (void)event;
	va_start(args, format);
	vsnprintf(told, sizeof(told), format, args);
	va_end(args);
}

static struct pressure pressure;
static struct turns_server server = {.socket = {.fd = -1}};
static struct events events;

/* A look at which NVML reports so many GPUs, with these names and so much memory each. */
static void look(unsigned gpu_count, const char *format, uint64_t total_bytes)
{
	static struct usage_gpu gpu[2 * TURNS_FILES_MAX];
	struct overview overview = {.usage = {gpu_count, gpu}};

	for (unsigned i = 0; i < gpu_count; i++) {
		snprintf(gpu[i].uuid, sizeof(gpu[i].uuid), "%s-%u", format, i);
		gpu[i].total_bytes = total_bytes;
	}
	told[0] = '\0';
	pressure_look(&pressure, &overview, &server, &events);
}

static int begin(void **state)
{
	(void)state;
	memset(&pressure, 0, sizeof(pressure));
	held_bytes = 15 * GIB;
	return 0;
}

/* The last total counts for some looks, whether NVML still lists the GPU or not. */
static void assert_blind(unsigned gpu_count)
{
	look(1, "GPU", 10 * GIB);
	assert_non_null(strstr(told, "hold more than the memory"));
	for (unsigned i = 1; i < BLIND_LOOKS; i++) {
		look(gpu_count, "GPU", 0);
		assert_string_equal(told, "");
		assert_int_equal(pressure.count, 1);
		assert_true(pressure.gpu[0].length_ns > 0);
		assert_int_equal(turns.header.pressure_ns, pressure.gpu[0].length_ns);
		assert_int_equal(pressure.gpu[0].total_bytes, 10 * GIB);
	}
	look(gpu_count, "GPU", 0);
	assert_non_null(strstr(told, "NVML has not reported the memory"));
	assert_int_equal(turns.header.pressure_ns, 0);
	look(gpu_count, "GPU", 0);
	assert_string_equal(told, "");
	assert_int_equal(pressure.count, gpu_count);
}

UNIT_TEST_AROUND(test_no_total, begin, NULL)
{
	assert_blind(1);
}

UNIT_TEST_AROUND(test_no_gpu, begin, NULL)
{
	assert_blind(0);
}

UNIT_TEST_AROUND(test_total_comes_back, begin, NULL)
{
	look(1, "GPU", 10 * GIB);
	for (unsigned i = 0; i < 2 * BLIND_LOOKS; i++) {
		look(1, "GPU", i % 2 ? 12 * GIB : 0);
		assert_string_equal(told, "");
		assert_int_equal(pressure.gpu[0].total_bytes, i ? 12 * GIB : 10 * GIB);
	}
	look(1, "GPU", 16 * GIB); /* 15 GiB fit, but pressure ends at 90 % */
	assert_string_equal(told, "");
	look(1, "GPU", 20 * GIB);
	assert_non_null(strstr(told, "fits GPU-0 again"));
}

/* A GPU whose total was never told has no pressure, and no ratio in the metrics. */
UNIT_TEST_AROUND(test_total_never_told, begin, NULL)
{
	struct text text = {0};

	look(1, "GPU", 0);
	assert_string_equal(told, "");
	assert_int_equal(pressure.gpu[0].length_ns, 0);
	pressure_write(&text, &pressure);
	assert_null(strstr(text.bytes, "pressure_ratio{"));
	assert_non_null(strstr(text.bytes, "pressure_turn_seconds{device_uuid=\"GPU-0\"} 0\n"));
	text_free(&text);
}

/* GPUs that have gone and GPUs that have come are more than there is room for. */
UNIT_TEST_AROUND(test_too_many, begin, NULL)
{
	look(TURNS_FILES_MAX, "GPU", 10 * GIB);
	look(TURNS_FILES_MAX / 2, "other", 10 * GIB);
	assert_int_equal(pressure.count, TURNS_FILES_MAX);
	look(2 * TURNS_FILES_MAX, "another", 10 * GIB);
	assert_int_equal(pressure.count, TURNS_FILES_MAX);
}
