/* The configuration of vgpu-device-plugin: what it may say, and that a mistake is never half
 * obeyed. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "size.h"
#include "unit.h"

#define SLICE "{name: vgpu.dev/s, memory: 8Gi, replicas: 4}"

static struct config config; /* of the last text that was accepted */
static struct fault fault;

static int parse(const char *text)
{
	fault.text[0] = '\0';
	return config_parse("file", text, strlen(text), &config, &fault);
}

static void accept(const char *text)
{
	int error = parse(text);

	if (error)
		print_error("%s\n", fault.text);
	assert_int_equal(error, 0);
}

/* The fault must have that in it. */
static void refuse(const char *text, const char *says)
{
	config.slice_count = 99;
	assert_int_equal(parse(text), -EINVAL);
	assert_int_equal(config.slice_count, 99);
	if (!strstr(fault.text, says))
		print_error("\"%s\" is not in: %s\n", says, fault.text);
	assert_non_null(strstr(fault.text, says));
}

static void refuse_in_slice(const char *settings, const char *says)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "sharing:\n  slices:\n  - {name: vgpu.dev/s, memory: 8Gi, replicas: 4}\n"
		 "  - {%s}\n",
		 settings);
	refuse(text, says);
}

UNIT_TEST(test_defaults)
{
	const struct config_slice *slice = &config.slice[0];

	accept("sharing: {slices: [" SLICE "]}");
	assert_int_equal(config.slice_count, 1);
	assert_string_equal(slice->resource, "vgpu.dev/s");
	assert_string_equal(slice->name, "s");
	assert_int_equal(slice->memory_bytes, 8 * GIB);
	assert_int_equal(slice->cores_pct, 0);
	assert_int_equal(slice->replicas, 4);
	assert_int_equal(slice->placement, CONFIG_SPREAD);
	assert_int_equal(slice->device_count, 0);
	assert_false(slice->single);
	assert_true(config.lists.envvar);
	assert_false(config.lists.cdi_cri || config.lists.volume_mounts ||
		     config.lists.cdi_annotations);
	assert_false(config.device_specs || config.overcommit);
	assert_string_equal(config.cdi_kind, "nvidia.com/gpu");
	assert_string_equal(config.library, "/usr/lib/vgpu/libvgpu.so");
	assert_string_equal(config.turns, "");
}

UNIT_TEST(test_all_settings)
{
	const struct config_slice *slice = &config.slice[0];

	accept("version: v1\n"
	       "flags:\n"
	       "  migStrategy: none\n"
	       "  plugin:\n"
	       "    deviceListStrategy: [cdi-cri, cdi-annotations]\n"
	       "    deviceIDStrategy: uuid\n"
	       "    passDeviceSpecs: true\n"
	       "    cdiKind: example.com/gpu\n"
	       "    library: /opt/libvgpu.so\n"
	       "    turns: /run/turns\n"
	       "sharing:\n"
	       "  overcommit: true\n"
	       "  slices:\n"
	       "  - name: vgpu.dev/slice-8g-30c\n"
	       "    memory: 512Mi # a comment\n"
	       "    cores: 30\n"
	       "    burst: 25ms\n"
	       "    replicas: \"4\"\n"
	       "    devices: [0, GPU-abc, 12]\n"
	       "    placement: same-gpu\n"
	       "    failRequestsGreaterThanOne: true\n"
	       "  - {name: a/b, memory: unlimited, cores: unlimited, replicas: 1, devices: all}\n"
	       "  - {name: a/c, memory: 8Gi, cores: 30-100, replicas: 1}\n");
	assert_int_equal(config.slice_count, 3);
	assert_int_equal(slice[2].cores_pct, 30);
	assert_int_equal(slice[2].cores_most_pct, 100);
	assert_int_equal(slice->memory_bytes, 512 * MIB);
	assert_int_equal(slice->cores_pct, 30);
	assert_int_equal(slice->burst_ns, 25000000);
	assert_int_equal(slice->device_count, 3);
	assert_string_equal(slice->device[1], "GPU-abc");
	assert_int_equal(slice->placement, CONFIG_SAME_GPU);
	assert_true(slice->single);
	assert_int_equal(config.slice[1].memory_bytes, 0);
	assert_true(config.lists.cdi_cri && config.lists.cdi_annotations);
	assert_false(config.lists.envvar);
	assert_true(config.device_specs && config.overcommit);
	assert_string_equal(config.cdi_kind, "example.com/gpu");
	assert_string_equal(config.library, "/opt/libvgpu.so");
	assert_string_equal(config.turns, "/run/turns");
}

UNIT_TEST(test_mistakes_have_their_line)
{
	refuse("", "no slices");
	refuse("version: v1\n", "no slices");
	refuse("sharing: {slices: []}", "no slices");
	refuse("version: v2\n", "file, line 1: \"v2\"");
	refuse("\n\nversoin: v1\n", "file, line 3: \"versoin\"");
	refuse("version: v1\nversion: v1\n", "file, line 2: \"version\" appears twice");
	refuse("- a\n", "line 1");
	refuse("a: [\n", "file, line");
	refuse("sharing:\n  timeSlicing:\n    resources: []\n", "line 3: timeSlicing");
	refuse("sharing:\n  slices: 7\n", "line 2: a list");
	refuse("sharing: &a\n  slices: [" SLICE ", *a]\n", "is no setting");
	refuse("flags: {plugin: {deviceListStrategy: envvars}}", "\"envvars\"");
	refuse("flags: {plugin: {deviceIDStrategy: index}}", "\"index\"");
	refuse("flags: {plugin: {passDeviceSpecs: yes}}", "neither true nor false");
	refuse("flags: {plugin: {library: libvgpu.so}}", "no absolute path");
	refuse("flags: {plugin: {cdiKind: gpu}}", "\"gpu\"");
	refuse("flags: {migStrategy: mixed}", "\"mixed\"");
}

UNIT_TEST(test_slices_are_whole)
{
	refuse_in_slice("name: a/t, memory: 8Gi", "needs name, memory and replicas");
	refuse_in_slice("name: a/t, replicas: 1", "needs name, memory and replicas");
	refuse_in_slice("memory: 8Gi, replicas: 1", "needs name, memory and replicas");
	refuse_in_slice("name: other/s, memory: 8Gi, replicas: 1", "two slices have the same name");
	refuse_in_slice("name: a/t, memory: 8Gi, replicas: 1, core: 30", "\"core\"");
	refuse_in_slice("name: a/t, memory: 8Gi, memory: 9Gi, replicas: 1", "twice");
}

/* 2^62 bytes four times are 2^64, which a policy would have as 0: no limit. */
UNIT_TEST(test_the_memory_of_all_replicas_is_a_number)
{
	refuse_in_slice("name: a/t, memory: 4611686018427387904, replicas: 4", "8 EiB or more");
	refuse_in_slice("name: a/t, memory: 4611686018427387904, replicas: 2", "8 EiB or more");
}

UNIT_TEST(test_values_are_in_range)
{
	static const char *const names[] = {"t",    "/t",    "a/",        "a/t/u", "a/-t",
					    "a/t-", "a b/t", "a/../",     "a/..",  "a/t:u",
					    "\"\"", "[]",    "\"a/t\\0\""};
	static const char *const sizes[] = {"8G", "8GB",  "0",   "-1",      "8Xi",
					    "[]", "\"\"", "1e9", "8 Ki Ki", "99999999999Gi"};
	static const char *const cores[] = {"0",  "101", "-1",    "30%",   "x",
					    "{}", "30-", "60-30", "30-60%"};
	static const char *const replicas[] = {"0", "257", "-1", "1.5", "many"};
	char text[256];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(text, sizeof(text), "name: %s, memory: 8Gi, replicas: 1", names[i]);
		refuse_in_slice(text, "is no name of a resource");
	}
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		snprintf(text, sizeof(text), "name: a/t, memory: %s, replicas: 1", sizes[i]);
		refuse_in_slice(text, "is no size");
	}
	for (size_t i = 0; i < sizeof(cores) / sizeof(cores[0]); i++) {
		snprintf(text, sizeof(text), "name: a/t, memory: 8Gi, replicas: 1, cores: %s",
			 cores[i]);
		refuse_in_slice(text, "is no percentage");
	}
	for (size_t i = 0; i < sizeof(replicas) / sizeof(replicas[0]); i++) {
		snprintf(text, sizeof(text), "name: a/t, memory: 8Gi, replicas: %s", replicas[i]);
		refuse_in_slice(text, "is no number of replicas");
	}
	refuse_in_slice("name: a/t, memory: 8Gi, replicas: 1, burst: 2s", "is no time");
	refuse_in_slice("name: a/t, memory: 8Gi, replicas: 1, placement: best", "no placement");
	refuse_in_slice("name: a/t, memory: 8Gi, replicas: 1, devices: [MIG-x]", "\"MIG-x\"");
	refuse_in_slice("name: a/t, memory: 8Gi, replicas: 1, devices: [-1]", "\"-1\"");
}

UNIT_TEST(test_lists_have_an_end)
{
	char text[4096] = "sharing:\n  slices:\n";
	size_t len;

	for (unsigned i = 0; i <= CONFIG_SLICES_MAX; i++) {
		len = strlen(text);
		snprintf(text + len, sizeof(text) - len,
			 "  - {name: a/t%u, memory: 8Gi, replicas: 1}\n", i);
		if (i + 1 == CONFIG_SLICES_MAX)
			accept(text);
	}
	refuse(text, "at most");
	refuse_in_slice("name: a/t, memory: 8Gi, replicas: 1, devices: "
			"[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]",
			"one GPU too many");
}

UNIT_TEST(test_the_example_is_good)
{
	assert_int_equal(config_load(EXAMPLE, &config, &fault), 0);
	assert_string_equal(config.slice[0].resource, "vgpu.dev/slice-8g-30c");
	assert_int_equal(config_load("/nowhere", &config, &fault), -ENOENT);
	assert_non_null(strstr(fault.text, "/nowhere"));
}
