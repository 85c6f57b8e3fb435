/* The kubelet's answer of pod resources, and the file of a container's names. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "place.h"
#include "pod_resources.h"
#include "unit.h"

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

static int read_answer(enum pod_resources_kind kind, const struct bytes *answer, size_t len,
		       struct seen *seen)
{
	*seen = (struct seen){""};
	return pod_resources_each((struct pb_message){answer->data, answer->data + len}, kind, see,
				  seen);
}

UNIT_TEST(test_answer)
{
	static const char *const two[] = {"a", "b", NULL}, *const one[] = {"c", NULL};
	struct bytes answer = {0};
	struct seen seen;

	(void)state;
	put_pod(&answer, "lab", "train-0", "main", two);
	put_pod(&answer, "default", "x", "y", one);
	assert_int_equal(read_answer(POD_RESOURCES_DEVICES, &answer, answer.len, &seen), 0);
	assert_string_equal(seen.text, "a=lab/train-0/main b=lab/train-0/main c=default/x/y ");
	assert_int_equal(read_answer(POD_RESOURCES_DEVICES, &answer, answer.len - 1, &seen),
			 -EBADMSG);
	bytes_free(&answer);
}

/* A container's claim, with two CDI devices of one driver and one of another. */
static void put_claim(struct bytes *container)
{
	static const char *const drivers[][2] = {{"k/x=1", "k/x=2"}, {"k/y=1", NULL}};
	struct bytes claim = {0};

	pb_put_string(&claim, 2, "claim");
	pb_put_string(&claim, 3, "lab");
	for (size_t i = 0; i < 2; i++) {
		struct bytes resource = {0};

		for (size_t j = 0; j < 2 && drivers[i][j]; j++) {
			struct bytes device = {0};

			pb_put_string(&device, 1, drivers[i][j]);
			pb_put_message(&resource, 1, &device);
			bytes_free(&device);
		}
		pb_put_string(&resource, 2, "net.example");
		pb_put_message(&claim, 4, &resource);
		bytes_free(&resource);
	}
	pb_put_message(container, 5, &claim);
	bytes_free(&claim);
}

UNIT_TEST(test_answer_with_a_claim)
{
	static const char *const ids[] = {"a", NULL};
	struct bytes answer = {0}, pod = {0}, container = {0};
	struct seen seen;

	(void)state;
	put_claim(&container);
	pb_put_string(&container, 1, "main");
	pb_put_string(&pod, 1, "train-0");
	pb_put_string(&pod, 2, "lab");
	pb_put_message(&pod, 3, &container);
	pb_put_message(&answer, 1, &pod);
	put_pod(&answer, "default", "x", "y", ids);
	assert_int_equal(read_answer(POD_RESOURCES_CDI, &answer, answer.len, &seen), 0);
	assert_string_equal(seen.text, "k/x=1=lab/train-0/main k/x=2=lab/train-0/main "
				       "k/y=1=lab/train-0/main ");
	assert_int_equal(read_answer(POD_RESOURCES_DEVICES, &answer, answer.len, &seen), 0);
	assert_string_equal(seen.text, "a=default/x/y ");
	bytes_free(&container);
	bytes_free(&pod);
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
	assert_int_equal(read_answer(POD_RESOURCES_DEVICES, &answer, answer.len, &seen), 0);
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
	struct pod_names names = {"lab", "train-0.x", "main"};
	struct pod_users users = {0}, read;
	char longest[POD_LINE_LEN];

	assert_false(pod_read(here.dir, POD_FILE, &read));
	pod_add(&users, &names);
	assert_int_equal(pod_write(here.dir, POD_FILE, &users, NULL), 0);
	assert_true(pod_read(here.dir, POD_FILE, &read));
	assert_int_equal(read.count, 1);
	assert_string_equal(pod_line(&read.user[0], longest), "lab/train-0.x/main");
	memset(names.name_space, 'a', sizeof(names.name_space) - 1);
	memset(names.pod, 'b', sizeof(names.pod) - 1);
	memset(names.container, 'c', sizeof(names.container) - 1);
	names.name_space[63] = names.pod[253] = names.container[63] = '\0';
	/* As many as are kept, of the longest names. */
	users.count = 0;
	for (char last = 'a'; last < 'a' + POD_USERS_MAX; last++) {
		names.container[62] = last;
		pod_add(&users, &names);
	}
	assert_int_equal(users.count, POD_USERS_MAX);
	assert_int_equal(pod_write(here.dir, POD_FILE, &users, NULL), 0);
	assert_true(pod_read(here.dir, POD_FILE, &read));
	assert_true(pod_users_are_same(&read, &users));
}

UNIT_TEST(test_users_have_an_order)
{
	static const struct pod_names names[] = {{"b", "a", "a"}, {"a", "b", "a"}, {"a", "a", "b"},
						 {"a", "a", "a"}, {"a", "b", "a"}, {"a", "A", "a"}};
	struct pod_users users = {0}, other = {0};
	char text[128] = "", line[POD_LINE_LEN];

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		pod_add(&users, &names[i]);
		pod_add(&other, &names[sizeof(names) / sizeof(names[0]) - 1 - i]);
	}
	for (unsigned i = 0; i < users.count; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s ",
			 pod_line(&users.user[i], line));
	assert_string_equal(text, "a/a/a a/a/b a/b/a b/a/a ");
	assert_true(pod_users_are_same(&users, &other));
	other.count--;
	assert_false(pod_users_are_same(&users, &other));
}

UNIT_TEST(test_of_too_many_users_the_first_stay)
{
	struct pod_names names = {"a", "p", "a"};
	struct pod_users users = {0};

	(void)state;
	for (char last = 'z'; last >= 'a'; last--) {
		names.container[0] = last;
		pod_add(&users, &names);
	}
	names.container[0] = 'z';
	pod_add(&users, &names);
	assert_int_equal(users.count, POD_USERS_MAX);
	for (unsigned i = 0; i < users.count; i++)
		assert_int_equal(users.user[i].container[0], 'a' + (char)i);
}

UNIT_TEST(test_shared_names)
{
	struct pod_users users = {0};
	struct pod_names shared;

	(void)state;
	pod_shared_names(&users, &shared);
	assert_string_equal(shared.pod, "");
	pod_add(&users, &(struct pod_names){"lab", "x", "main"});
	pod_shared_names(&users, &shared);
	assert_int_equal(pod_compare(&shared, &users.user[0]), 0);
	pod_add(&users, &(struct pod_names){"lab", "x", "side"});
	pod_shared_names(&users, &shared);
	assert_int_equal(pod_compare(&shared, &(struct pod_names){"lab", "x", ""}), 0);
	pod_add(&users, &(struct pod_names){"lab", "y", "main"});
	pod_shared_names(&users, &shared);
	assert_int_equal(pod_compare(&shared, &(struct pod_names){"lab", "", ""}), 0);
}

UNIT_TEST(test_odd_names_are_refused)
{
	static const struct pod_names odd[] = {
		{"", "b", "c"},     {"a", "", "c"},    {"a", "b", ""},         {"a/x", "b", "c"},
		{"a", "b\nx", "c"}, {"A", "b", "c"},   {"a", "b\x1b[2J", "c"}, {"a", "b", "c\"} 1"},
		{"a", "b c", "c"},  {"a", "\xff", "c"}};
	struct pod_users users = {0}, read;
	struct fault fault = {""};

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		pod_add(&users, &odd[i]);
	assert_int_equal(users.count, 0);
	assert_int_equal(pod_write(here.dir, POD_FILE, &users, &fault), -EINVAL);
	assert_true(fault.text[0] != '\0');
	assert_false(pod_read(here.dir, POD_FILE, &read));
}

UNIT_TEST(test_odd_files_are_passed_over)
{
	static const char *const odd[] = {"",          "a",         "a/b\n",    "a/b/c",
					  "a/b/c\nd",  "a/b/c/d\n", "a//c\n",   "a/b/\x1b\n",
					  "a/b/c d\n", "/b/c\n",    "a/b/c\n\n"};
	struct pod_users read;

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		write_text(here.dir, odd[i]);
		assert_false(pod_read(here.dir, POD_FILE, &read));
	}
	write_text(here.dir, "a/b/c\n");
	assert_true(pod_read(here.dir, POD_FILE, &read));
}

UNIT_TEST(test_a_pipe_names_no_pod)
{
	struct pod_users read;
	char path[256];

	snprintf(path, sizeof(path), "%s/" POD_FILE, here.dir);
	place_pipe(path);
	assert_false(pod_read(here.dir, POD_FILE, &read));
}
