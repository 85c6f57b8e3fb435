/* The kubelet's answer of pod resources, and the file of a container's names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h wants those four before it. */
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "place.h"
#include "pod_resources.h"
#include "unit.h"

#undef UNIT_SET_UP
#undef UNIT_TEAR_DOWN
#define UNIT_SET_UP    place_make
#define UNIT_TEAR_DOWN remove_place

static int remove_place(void **state)
{
	const struct place *place = *state;
	char path[256];

	snprintf(path, sizeof(path), "%s/" POD_FILE, place->dir);
	unlink(path);
	return place_remove(state);
}

/* -- the answer -------------------------------------------------------------------------------- */

static void put_container(struct bytes *pod, const char *name, const char *const *ids)
{
	struct bytes container = {0}, devices = {0};

	pb_put_string(&devices, 1, "vgpu.dev/s");
	for (; *ids; ids++)
		pb_put_string(&devices, 2, *ids);
	pb_put_message(&container, 2, &devices); /* the name comes after what it is the name of */
	pb_put_string(&container, 1, name);
	pb_put_message(pod, 3, &container);
	bytes_free(&container);
	bytes_free(&devices);
}

static void put_pod(struct bytes *answer, const char *name_space, const char *name,
		    const char *container, const char *const *ids)
{
	struct bytes pod = {0};

	put_container(&pod, container, ids);
	pb_put_string(&pod, 1, name);
	pb_put_string(&pod, 2, name_space);
	pb_put_message(answer, 1, &pod);
	bytes_free(&pod);
}

struct seen {
	char text[512];
};

static void see(void *arg, const char *id, size_t len, const struct pod_names *names)
{
	struct seen *seen = arg;
	size_t at = strlen(seen->text);

	snprintf(seen->text + at, sizeof(seen->text) - at, "%.*s=%s/%s/%s ", (int)len, id,
		 names->name_space, names->pod, names->container);
}

static int read_answer(const struct bytes *answer, size_t len, struct seen *seen)
{
	*seen = (struct seen){""};
	return pod_resources_each((struct pb_message){answer->data, answer->data + len}, see, seen);
}

UNIT_TEST(test_answer)
{
	static const char *const two[] = {"a", "b", NULL}, *const one[] = {"c", NULL};
	struct bytes answer = {0};
	struct seen seen;

	(void)state;
	put_pod(&answer, "lab", "train-0", "main", two);
	put_pod(&answer, "default", "x", "y", one);
	assert_int_equal(read_answer(&answer, answer.len, &seen), 0);
	assert_string_equal(seen.text, "a=lab/train-0/main b=lab/train-0/main c=default/x/y ");
	assert_int_equal(read_answer(&answer, answer.len - 1, &seen), -EBADMSG);
	bytes_free(&answer);
}

UNIT_TEST(test_name_that_is_too_long)
{
	static const char *const ids[] = {"a", NULL};
	struct bytes answer = {0};
	struct seen seen;
	char name[65];

	(void)state;
	memset(name, 'n', sizeof(name));
	name[64] = '\0';
	put_pod(&answer, name, "x", "y", ids);
	assert_int_equal(read_answer(&answer, answer.len, &seen), 0);
	assert_string_equal(seen.text, "a=/x/y ");
	bytes_free(&answer);
}

/* -- the file ---------------------------------------------------------------------------------- */

static void write_text(const char *dir, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/" POD_FILE, dir);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

UNIT_TEST(test_file)
{
	const struct place *place = *state;
	struct pod_names names = {"lab", "train-0.x", "main"}, read;
	char longest[POD_LINE_LEN];

	assert_false(pod_read(place->dir, &read));
	assert_int_equal(pod_write(place->dir, &names, NULL), 0);
	assert_true(pod_read(place->dir, &read));
	assert_string_equal(pod_line(&read, longest), "lab/train-0.x/main");
	memset(names.name_space, 'a', sizeof(names.name_space) - 1);
	memset(names.pod, 'b', sizeof(names.pod) - 1);
	memset(names.container, 'c', sizeof(names.container) - 1);
	names.name_space[63] = names.pod[253] = names.container[63] = '\0';
	assert_int_equal(pod_write(place->dir, &names, NULL), 0);
	assert_true(pod_read(place->dir, &read));
	assert_string_equal(read.name_space, names.name_space);
	assert_string_equal(read.pod, names.pod);
	assert_string_equal(read.container, names.container);
}

UNIT_TEST(test_odd_names_are_refused)
{
	static const struct pod_names odd[] = {
		{"", "b", "c"},     {"a", "", "c"},    {"a", "b", ""},         {"a/x", "b", "c"},
		{"a", "b\nx", "c"}, {"A", "b", "c"},   {"a", "b\x1b[2J", "c"}, {"a", "b", "c\"} 1"},
		{"a", "b c", "c"},  {"a", "\xff", "c"}};
	const struct place *place = *state;
	struct pod_names read;

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		struct fault fault = {""};

		assert_int_equal(pod_write(place->dir, &odd[i], &fault), -EINVAL);
		assert_true(fault.text[0] != '\0');
		assert_false(pod_read(place->dir, &read));
	}
}

UNIT_TEST(test_odd_files_are_passed_over)
{
	static const char *const odd[] = {"",          "a",         "a/b\n",    "a/b/c",
					  "a/b/c\nd",  "a/b/c/d\n", "a//c\n",   "a/b/\x1b\n",
					  "a/b/c d\n", "/b/c\n",    "a/b/c\n\n"};
	const struct place *place = *state;
	struct pod_names read;

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		write_text(place->dir, odd[i]);
		assert_false(pod_read(place->dir, &read));
	}
	write_text(place->dir, "a/b/c\n");
	assert_true(pod_read(place->dir, &read));
}
