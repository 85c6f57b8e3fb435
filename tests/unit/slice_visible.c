/* What the driver is told in CUDA_VISIBLE_DEVICES: every form that the variable has. */
#include <stdio.h>
#include <string.h>

#include "unit.h"
#include "visible.h"

#define A "GPU-51300000-0000-4000-8000-00000000000a"
#define B "GPU-51300000-0000-4000-8000-00000000000b"
#define C "GPU-61300000-0000-4000-8000-00000000000c"
#define M "MIG-71300000-0000-4000-8000-00000000000d"
#define X "GPU-81300000-0000-4000-8000-00000000000e" /* outside the slice */

static const struct policy three = {.device_count = 3,
				    .device = {{.uuid = A}, {.uuid = B}, {.uuid = C}}};
static const struct policy mixed = {.device_count = 3,
				    .device = {{.uuid = A}, {.uuid = C}, {.uuid = M}}};
static const struct policy one = {.device_count = 1, .device = {{.uuid = B}}};

/* A machine of four, by bus: C, X, A, B. */
static const struct visible_order four = {.gpu_count = 4, .place = {2, 3, 0}};
static const struct visible_order unknown = {.gpu_count = 0};

struct example {
	const char *asked, *list;
};

static void assert_lists(const struct policy *policy, const struct visible_order *order,
			 const struct example *examples, size_t count)
{
	char list[VISIBLE_LIST_LEN];

	for (size_t i = 0; i < count; i++) {
		memset(list, 'x', sizeof(list));
		assert_true(visible_compose(policy, examples[i].asked, order, list));
		if (strcmp(list, examples[i].list) != 0)
			fail_msg("\"%s\" becomes \"%s\" instead of \"%s\"",
				 examples[i].asked ? examples[i].asked : "(none)", list,
				 examples[i].list);
	}
}

#define ASSERT_LISTS(policy, order, examples) \
	assert_lists(policy, order, examples, sizeof(examples) / sizeof(examples[0]))

UNIT_TEST(test_numbers)
{
	static const struct example examples[] = {
		{NULL, C "," A "," B},
		{"0", C},
		{"1", A},
		{"2,0", B "," C},
		{"2,1,0", B "," A "," C},
		{"3", ""},
		{"0,3,1", C},
		{"0,-1,1", C},
		{"-1", ""},
		{"-0", C},
		{"+1", A},
		{"01", A},
		{"1x,2", A "," B},
		{"0x1", C},
		{"0 1", C},
		{"0;1", C},
		{" 1 ,\t0 ", A "," C},
		{"1\n", A},
		{"0,,1", C},
		{",0", ""},
		{"0,", C},
		{"4294967296", C},
		{"4294967297", A},
		{"9223372036854775807", ""},
		{"99999999999999999999", ""},
		{"-99999999999999999999", ""},
		{"", ""},
		{" ", ""},
		{"NoDevFiles", ""},
		{"all", ""},
		{"void", ""},
		{"-", ""},
	};

	ASSERT_LISTS(&three, &four, examples);
}

UNIT_TEST(test_uuids)
{
	static const struct example examples[] = {
		{A, A},
		{C "," A, C "," A},
		{B "," A "," C, B "," A "," C},
		{"GPU-6", C},
		{"GPU-51300000-0000-4000-8000-00000000000B", B},
		{"GPU-5", ""}, /* two begin so */
		{C ",GPU-5," A, C},
		{"GPU-", ""},
		{"GPU", ""},
		{"gpu-61300000", ""},
		{"61300000-0000-4000-8000-00000000000c", ""},
		{"MIG-61300000", C},
		{C "0", C},
		{C " ," A, C "," A},
		{C ", " A, C},
		{" " C, ""},
		{X, ""},
		{A "," X "," B, A},
		{X "," A, ""},
		{"GPU-8", ""},
		{C ",", C},
		{C ",," A, C},
	};

	ASSERT_LISTS(&three, &four, examples);
	ASSERT_LISTS(&three, &unknown, examples); /* no matter what the machine is */
}

UNIT_TEST(test_both_kinds)
{
	static const struct example examples[] = {
		{A ",0", A},
		{"0," A, C},
		{A ",-1", A},
		{"0,GPU-6", C},
	};

	ASSERT_LISTS(&three, &four, examples);
}

/* The driver fails cuInit then, and is let do it. */
UNIT_TEST(test_twice)
{
	static const struct example examples[] = {
		{"0,0", C "," C},
		{"1,0,1,2", A "," C "," A},
		{A ",GPU-6," A "," B, A "," C "," A},
		{"0,4,0", C},
	};

	ASSERT_LISTS(&three, &four, examples);
}

UNIT_TEST(test_single)
{
	static const struct example examples[] = {
		{NULL, B}, {"0", B}, {"1", ""},    {"0,1", B},
		{B, B},    {A, ""},  {"GPU-5", B}, {"0,0", B "," B},
	};

	ASSERT_LISTS(&one, &unknown, examples);
}

/* Without NVML, as the policy has them. */
UNIT_TEST(test_order_unknown)
{
	static const struct example examples[] = {
		{NULL, A "," B "," C}, {"2,0", C "," A}, {"3", ""}};

	ASSERT_LISTS(&three, &unknown, examples);
}

/* One that the machine has not hides no other, and has no number. */
UNIT_TEST(test_missing)
{
	static const struct visible_order no_a = {.gpu_count = 3, .place = {-1, 2, 0}};
	static const struct visible_order none = {.gpu_count = 3, .place = {-1, -1, -1}};
	static const struct example without_a[] = {
		{NULL, C "," B}, {"1", B}, {"2", ""}, {A "," B, A "," B}};
	static const struct example nothing[] = {{NULL, ""}, {"0", ""}};

	ASSERT_LISTS(&three, &no_a, without_a);
	ASSERT_LISTS(&three, &none, nothing);
}

UNIT_TEST(test_mig)
{
	static const struct visible_order order = {.gpu_count = 3, .place = {1, 0, -1}};
	static const struct example examples[] = {
		{NULL, C "," A "," M}, {"2", M}, {M, M}, {"MIG-7," A, M "," A}, {"GPU-7", M}};

	ASSERT_LISTS(&mixed, &order, examples);
}

/* A slice of all cards leaves the driver its own order. */
UNIT_TEST(test_all)
{
	static const struct visible_order all = {.gpu_count = 3, .place = {2, 1, 0}};
	static const struct visible_order alone = {.gpu_count = 1, .place = {0}};
	char list[VISIBLE_LIST_LEN] = "untouched";

	assert_false(visible_compose(&three, NULL, &all, list));
	assert_false(visible_compose(&three, "2,0", &all, list));
	assert_false(visible_compose(&one, NULL, &alone, list));
	assert_string_equal(list, "untouched");
	assert_true(visible_compose(&three, NULL, &four, list));
}

UNIT_TEST(test_needs_order)
{
	static const char *const needing[] = {NULL, "0", "1,0", " 2", "0x", "7"};
	static const char *const others[] = {"", "-1", "NoDevFiles", A, A ",0", "MIG-1", ","};

	for (size_t i = 0; i < sizeof(needing) / sizeof(needing[0]); i++) {
		assert_true(visible_needs_order(&three, needing[i]));
		assert_false(visible_needs_order(&one, needing[i]));
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		assert_false(visible_needs_order(&three, others[i]));
}

/* As many as there can be, with names as long as they can be. */
UNIT_TEST(test_longest)
{
	struct policy policy = {.device_count = VGPU_DEVICES_MAX};
	char list[VISIBLE_LIST_LEN + 1];

	for (unsigned i = 0; i < VGPU_DEVICES_MAX; i++)
		snprintf(policy.device[i].uuid, VGPU_UUID_LEN, "GPU-%091u", i);
	list[VISIBLE_LIST_LEN] = '!';
	assert_true(visible_compose(&policy, NULL, &unknown, list));
	assert_int_equal(strlen(list), VISIBLE_LIST_LEN - 1);
	assert_true(visible_compose(&policy, "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,15", &unknown,
				    list));
	assert_int_equal(strlen(list), VISIBLE_LIST_LEN - 1);
	assert_int_equal(list[VISIBLE_LIST_LEN], '!');
}
