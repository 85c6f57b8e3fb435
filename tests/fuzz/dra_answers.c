/*
 * Fuzzes the API server's answers to vgpu-dra, other than good ResourceClaims: the node, its
 * ResourceSlice, and errors. The first byte of the input chooses the question. Answers follow, each
 * a byte for its status and a text that ends at SEPARATOR or with the input.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "claim_fetch.h"
#include "input.h"
#include "json.h"
#include "node.h"
#include "publish.h"

#define SEPARATOR 0x1e

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The part of the input that has not been read yet. */
static struct {
	const uint8_t *at, *end;
} input;

static const struct gpus gpus = {
	.count = 2,
	.gpu = {{.uuid = "GPU-51300000-0000-4000-8000-000000000000",
		 .name = "a GPU",
		 .numa = 1,
		 .total_bytes = (uint64_t)80 << 30,
		 .healthy = true},
		{.uuid = "GPU-51300000-0000-4000-8000-000000000001",
		 .numa = -1,
		 .total_bytes = (uint64_t)80 << 30,
		 .healthy = true}},
};

/* A body must be a ResourceSlice with both GPUs, of a generation that the API server takes. */
static void check_body(const char *body)
{
	struct json_object *slice = json_read(body, strlen(body));
	struct json_object *devices = json_at(slice, "spec.devices");

	check(json_object_get_int64(json_at(slice, "spec.pool.generation")) >= 1);
	check(json_text_at(slice, "spec.nodeName") != NULL);
	check(json_object_is_type(devices, json_type_array) &&
	      json_object_array_length(devices) == gpus.count);
	json_object_put(slice);
}

/* In the place of api_server.c's: no request is sent. */
int __wrap_api_server_ask(struct api_server *server, const char *method, const char *path,
			  const char *body, struct bytes *ret_body, struct fault *fault);
int __wrap_api_server_ask(struct api_server *server, const char *method, const char *path,
			  const char *body, struct bytes *ret_body, struct fault *fault)
{
	static const int statuses[] = {API_OK, API_CREATED, API_NOT_FOUND, API_CONFLICT, 429, 503};
	const uint8_t *separator;
	uint8_t chosen;

	(void)server;
	check(path[0] == '/' && !strstr(path, ".."));
	check((strcmp(method, "GET") == 0) == (body == NULL));
	if (body)
		check_body(body);
	if (input.at == input.end)
		return fault_set(fault, -EIO, "no answer");
	chosen = *input.at++ % (sizeof(statuses) / sizeof(statuses[0]));
	separator = memchr(input.at, SEPARATOR, (size_t)(input.end - input.at));
	if (!separator)
		separator = input.end;
	bytes_add(ret_body, input.at, (size_t)(separator - input.at));
	input.at = separator < input.end ? separator + 1 : input.end;
	return statuses[chosen];
}

/* In the place of say.c's: nothing is printed. */
void __wrap_say(int level, const char *format, ...);
void __wrap_say(int level, const char *format, ...)
{
	(void)level, (void)format;
}

static void fuzz_publish(void)
{
	struct publish publish = {.gpus = &gpus, .driver = "gpu.vgpu.dev", .node = "node-1"};

	while (input.at < input.end) {
		publish_soon(&publish);
		publish_look(&publish);
		check(memchr(publish.version, '\0', sizeof(publish.version)) != NULL);
		check(publish.next_ns > 0);
	}
}

static void fuzz_node(void)
{
	struct fault fault = {""};
	char uid[NODE_UID_LEN] = "untouched";
	int error = node_find(NULL, "node-1", uid, &fault);

	check((error == 0) == (fault.text[0] == '\0'));
	check(error <= 0 && memchr(uid, '\0', sizeof(uid)) != NULL);
	check(!error || strcmp(uid, "untouched") == 0);
}

static void fuzz_claim(void)
{
	static const struct claim_id id = {"team", "alice", "u-1"};
	struct fault fault = {""};
	struct bytes text = {0};
	int error = claim_fetch(NULL, &id, &text, &fault);

	check((error == 0) == (fault.text[0] == '\0'));
	check(error == 0 || error == -ENOENT || error == -EIO || error == -EACCES);
	bytes_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const questions[])(void) = {fuzz_publish, fuzz_node, fuzz_claim};
	uint8_t *copy;

	if (size < 2)
		return 0;
	copy = copy_input(data + 1, size - 1);
	input.at = copy;
	input.end = copy + size - 1;
	questions[data[0] % (sizeof(questions) / sizeof(questions[0]))]();
	free(copy);
	return 0;
}
