/* Whether the node that the API server knows is this machine. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "boot.h"
#include "node.h"
#include "unit.h"

#define HERE "00000000-0000-4000-8000-000000000001"

/* In the place of the functions of other files. */
static const char *boot_here, *answer;

void __wrap_boot_read(char ret_id[BOOT_LEN]);

void __wrap_boot_read(char ret_id[BOOT_LEN])
{
	snprintf(ret_id, BOOT_LEN, "%s", boot_here);
}

int api_server_ask(struct api_server *server, const char *method, const char *path,
		   const char *body, struct bytes *ret_body, struct fault *fault)
{
	(void)server, (void)body, (void)fault;
	assert_string_equal(method, "GET");
	assert_string_equal(path, "/api/v1/nodes/node-1");
	bytes_add(ret_body, answer, strlen(answer));
	return API_OK;
}

int api_server_refused(const char *method, const char *path, int status, const struct bytes *body,
		       int error, struct fault *fault)
{
	(void)method, (void)path, (void)status, (void)body, (void)error, (void)fault;
	fail();
	return -EIO;
}

/* Looks for the node whose status has that text, on a machine with that boot ID. */
static int find(const char *here, const char *status)
{
	char text[256], uid[NODE_UID_LEN] = "";
	struct fault fault = {""};
	int error;

	boot_here = here;
	answer = text;
	snprintf(text, sizeof(text), "{\"metadata\": {\"uid\": \"u\"}, \"status\": %s}", status);
	error = node_find(NULL, "node-1", uid, &fault);
	assert_string_equal(uid, error ? "" : "u");
	assert_int_equal(*fault.text == '\0', error == 0);
	return error;
}

static int find_with_id(const char *here, const char *there)
{
	char status[128];

	snprintf(status, sizeof(status), "{\"nodeInfo\": {\"bootID\": \"%s\"}}", there);
	return find(here, status);
}

UNIT_TEST(test_machine)
{
	(void)state;
	assert_int_equal(find_with_id(HERE, HERE), 0);
	assert_int_equal(find_with_id(HERE, "another"), -EXDEV);
	assert_int_equal(find_with_id(HERE, HERE "2"), -EXDEV);
}

/* An ID that is not known is no other machine's. */
UNIT_TEST(test_unknown)
{
	(void)state;
	assert_int_equal(find_with_id("", "another"), 0);
	assert_int_equal(find_with_id(HERE, ""), 0);
	assert_int_equal(find(HERE, "{\"nodeInfo\": {}}"), 0);
	assert_int_equal(find(HERE, "{}"), 0);
}
