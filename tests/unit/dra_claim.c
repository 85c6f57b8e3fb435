/* What vgpu-dra reads of the API server, and what it writes there: quantities, claims and slices.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "claim.h"
#include "json.h"
#include "quantity.h"
#include "resource_slice.h"
#include "unit.h"

#define DRIVER "gpu.vgpu.dev"

static const struct claim_id alice = {"team", "alice", "u-1"};

/* -- quantities -------------------------------------------------------------------------------- */

UNIT_TEST(reads_quantities)
{
	static const struct {
		const char *text;
		uint64_t value;
	} good[] = {
		{"0", 0},
		{"30", 30},
		{"+30", 30},
		{"8Gi", (uint64_t)8 << 30},
		{"1.5Gi", (uint64_t)3 << 29},
		{"8589934592", (uint64_t)8 << 30},
		{"8G", 8000000000},
		{"2e3", 2000},
		{"2E3", 2000},
		{"1E", 1000000000000000000},
		{"15e-1", 2},
		{"1500m", 2},
		{"1n", 1},
		{".5Ki", 512},
		{"5.", 5},
		{"0000000000000000000000000000007", 7},
		{"9223372036854775807", INT64_MAX},
	};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		uint64_t value = 1;
		int error = quantity_parse(good[i].text, &value);

		assert_int_equal(error, 0);
		assert_int_equal(value, good[i].value);
	}
}

UNIT_TEST(refuses_what_is_no_quantity)
{
	static const char *const bad[] = {"",     ".",    "Gi",  "-1",    "8gi",  "8GiB", "8 Gi",
					  "1..5", "1e",   "1e+", "1e99",  "1e3m", "8Ei",  "1e19",
					  "0x10", "1e 3", "99E", "1e1e1", "\xc3"};
	uint64_t value = 7;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_true(quantity_parse(bad[i], &value) < 0);
	assert_int_equal(value, 7);
}

UNIT_TEST(writes_quantities)
{
	char buf[32];

	assert_string_equal(quantity_format((uint64_t)80 << 30, buf, sizeof(buf)), "80Gi");
	assert_string_equal(quantity_format(((uint64_t)80 << 30) - 1, buf, sizeof(buf)), "81919Mi");
	assert_string_equal(quantity_format((uint64_t)2 << 40, buf, sizeof(buf)), "2Ti");
	assert_string_equal(quantity_format(1, buf, sizeof(buf)), "0Mi");
}

/* -- claims ------------------------------------------------------------------------------------ */

static int parse(const char *results, struct claim *ret_claim, struct fault *fault)
{
	char text[4096];
	int len = snprintf(text, sizeof(text),
			   "{\"metadata\": {\"namespace\": \"team\", \"name\": \"alice\", \"uid\": "
			   "\"u-1\"}, \"status\": {\"allocation\": {\"devices\": {\"results\": "
			   "[%s]}}}}",
			   results);

	return claim_parse(text, (size_t)len, &alice, DRIVER, ret_claim, fault);
}

#define SHARE(more)                                        \
	"{\"request\": \"gpu/any\", \"driver\": \"" DRIVER \
	"\", \"pool\": \"node-1\", \"device\": \"gpu-1\"" more "}"
#define CONSUMED(capacity) SHARE(", \"consumedCapacity\": {" capacity "}")

UNIT_TEST(reads_shares)
{
	struct claim claim;

	assert_int_equal(
		parse(SHARE("") ", " CONSUMED(
			      "\"memory\": \"8Gi\", \"cores\": \"30\"") ", " CONSUMED("\"" DRIVER
										      "/memory\": "
										      "\"1Gi\""),
		      &claim, NULL),
		0);
	assert_int_equal(claim.count, 3);
	assert_string_equal(claim.device[0].request, "gpu");
	assert_int_equal(claim.device[0].memory_bytes, 0);
	assert_int_equal(claim.device[0].cores_pct, 0);
	assert_int_equal(claim.device[1].memory_bytes, (uint64_t)8 << 30);
	assert_int_equal(claim.device[1].cores_pct, 30);
	assert_int_equal(claim.device[2].memory_bytes, (uint64_t)1 << 30);
	assert_int_equal(claim.device[2].cores_pct, 0);
}

UNIT_TEST(refuses_shares)
{
	static const struct {
		int error;
		const char *results;
	} bad[] = {
		{-ENODATA, ""},
		{-ENODATA, "{\"driver\": \"net.example\"}, 7, null"},
		{-EINVAL, SHARE(", \"adminAccess\": true")},
		{-EINVAL, SHARE(", \"adminAccess\": {}")},
		{-EINVAL, SHARE(", \"adminAccess\": 0")},
		{-EINVAL, SHARE(", \"consumedCapacity\": []")},
		{-EINVAL, SHARE(", \"consumedCapacity\": \"8Gi\"")},
		{-EINVAL, SHARE(", \"shareID\": 1")},
		{-EINVAL, SHARE(", \"shareID\": \"../s\"")},
		{-EINVAL, CONSUMED("\"memory\": \"0\"")},
		{-EINVAL, CONSUMED("\"memory\": 8")},
		{-EINVAL, CONSUMED("\"memory\": null")},
		{-EINVAL, CONSUMED("\"memory\": \"8Gi\\u0000\"")},
		{-EINVAL, CONSUMED("\"cores\": \"0\"")},
		{-EINVAL, CONSUMED("\"cores\": \"101\"")},
		{-EINVAL, "{\"driver\": \"" DRIVER "\"}"},
		{-EINVAL, SHARE(", \"device\": \"../gpu-1\"")},
		{-EBADMSG, "]"},
	};
	struct claim claim;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct fault fault = {""};

		assert_int_equal(parse(bad[i].results, &claim, &fault), bad[i].error);
		assert_true(*fault.text);
	}
}

UNIT_TEST(refuses_other_claims)
{
	static const struct {
		struct claim_id id;
		int error;
	} others[] = {{{"team", "alice", "u-2"}, -ESTALE},
		      {{"team", "bob", "u-1"}, -EBADMSG},
		      {{"other", "alice", "u-1"}, -EBADMSG}};
	static const char text[] = "{\"metadata\": {\"namespace\": \"team\", \"name\": \"alice\", "
				   "\"uid\": \"u-1\"}}";
	struct claim claim;

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		assert_int_equal(
			claim_parse(text, strlen(text), &others[i].id, DRIVER, &claim, NULL),
			others[i].error);
}

UNIT_TEST(names_stand_in_paths)
{
	static const struct claim_id bad[] = {
		{"a/b", "n", "u"}, {"a", "n/../m", "u"}, {"a", "..", "u"},  {"a", "n", "../u"},
		{"", "n", "u"},    {"a", "n", ""},       {"a", "n", "U"},   {"a.b", "n", "u"},
		{"a", "n", "u.v"}, {"a", "-n", "u"},     {"a", "n", "u\n"},
	};

	assert_true(claim_id_is_good(&alice));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(claim_id_is_good(&bad[i]));
}

/* -- slices ------------------------------------------------------------------------------------ */

static struct json_object *read_text(const char *text)
{
	struct json_object *object = json_read(text, strlen(text));

	assert_non_null(object);
	return object;
}

static bool contains(const char *whole, const char *part)
{
	struct json_object *one = read_text(whole), *other = read_text(part);
	bool result = json_contains(one, other);

	json_object_put(one);
	json_object_put(other);
	return result;
}

UNIT_TEST(compares_with_what_the_server_has)
{
	assert_true(contains("[{\"a\": 1, \"more\": []}]", "[{\"a\": 1}]"));
	assert_false(contains("[{\"a\": 1}]", "[{\"a\": 1, \"b\": 2}]"));
	assert_false(contains("[{\"a\": 2}]", "[{\"a\": 1}]"));
	assert_false(contains("[{\"a\": \"1\"}]", "[{\"a\": 1}]"));
	assert_false(contains("[1, 2]", "[1]"));
	assert_false(contains("[]", "[1]"));
}

UNIT_TEST(leaves_out_sick_gpus)
{
	static const struct gpus gpus = {
		.count = 3,
		.gpu = {{.uuid = "GPU-A1", .numa = -1, .total_bytes = 3 << 20, .healthy = true},
			{.uuid = "GPU-B2", .numa = 1, .total_bytes = 1 << 20},
			{.uuid = "GPU-C3", .numa = 1, .healthy = true}},
	};
	struct json_object *devices = resource_slice_devices(&gpus);

	assert_int_equal(json_object_array_length(devices), 1);
	assert_string_equal(json_text_at(json_object_array_get_idx(devices, 0), "name"), "gpu-a1");
	assert_string_equal(
		json_text_at(json_object_array_get_idx(devices, 0), "capacity.memory.value"),
		"3Mi");
	json_object_put(devices);
	assert_ptr_equal(resource_slice_find(&gpus, "gpu-b2"), &gpus.gpu[1]);
	assert_null(resource_slice_find(&gpus, "GPU-B2"));
}
