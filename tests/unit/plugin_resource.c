/* The methods of a resource, with memory and without. */
#include <string.h>

#include "resource.h"
#include "unit.h"

#define ALLOCATIONS_MAX 100

/* So many allocations succeed, and then there is no memory. */
static unsigned allocations_left = UINT32_MAX;

static bool may_allocate(void)
{
	return allocations_left > 0 && allocations_left--;
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_realloc(void *block, size_t size);
void *__wrap_realloc(void *block, size_t size);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t size)
{
	return may_allocate() ? __real_malloc(size) : NULL;
}

void *__wrap_realloc(void *block, size_t size)
{
	return may_allocate() ? __real_realloc(block, size) : NULL;
}

char *__wrap_strdup(const char *text)
{
	return may_allocate() ? __real_strdup(text) : NULL;
}

/* In the place of the functions of other files. */
int containers_ready(const struct containers_places *places, const char *const *ids,
		     struct fault *fault)
{
	(void)places, (void)fault;
	assert_string_equal(ids[0], "GPU-a::s::0");
	assert_string_equal(ids[1], "GPU-a::s::1");
	return 0;
}

void names_ask(struct names *names)
{
	(void)names;
}

enum grpc_status resource_allocate(void *arg, struct pb_message request, struct bytes *ret_message,
				   struct fault *fault)
{
	(void)arg, (void)request, (void)ret_message, (void)fault;
	fail();
	return GRPC_INTERNAL;
}

static const struct config_slice slice = {.name = "s", .replicas = 2};
static const struct gpus gpus = {.count = 1, .gpu = {{.uuid = "GPU-a"}}};
static struct resource resource = {
	.devices = {.slice = &slice, .gpus = &gpus, .gpu_count = 1},
};

/* Calls the method while there is memory for so many allocations. */
static enum grpc_status call(const char *method, const struct bytes *request, unsigned allocations,
			     struct bytes *answer, struct fault *fault)
{
	const struct grpc_method *at = resource_methods;
	enum grpc_status status;

	while (!strstr(at->path, method))
		at++;
	allocations_left = allocations;
	status = at->answer(&resource,
			    (struct pb_message){request->data, request->data + request->len},
			    answer, fault);
	allocations_left = UINT32_MAX;
	return status;
}

/* Calls the method with memory for no allocation, for one, and so on, until it succeeds. */
static void call_with_little_memory(const char *method, const struct bytes *request)
{
	unsigned allocations = 0;

	for (; allocations < ALLOCATIONS_MAX; allocations++) {
		struct fault fault = {""};
		struct bytes answer = {0};
		enum grpc_status status = call(method, request, allocations, &answer, &fault);
		bool done = status == GRPC_OK && !answer.failed;

		bytes_free(&answer);
		if (done)
			break;
		if (status != GRPC_OK) {
			assert_int_equal(status, GRPC_RESOURCE_EXHAUSTED);
			assert_non_null(strstr(fault.text, "no memory"));
		}
	}
	assert_in_range(allocations, 1, ALLOCATIONS_MAX - 1);
}

UNIT_TEST(test_a_start_without_memory_is_no_wrong_request)
{
	struct bytes request = {0};

	pb_put_string(&request, 1, "GPU-a::s::0");
	pb_put_string(&request, 1, "GPU-a::s::1");
	call_with_little_memory("PreStartContainer", &request);
	bytes_free(&request);
}

UNIT_TEST(test_a_preference_without_memory_is_no_wrong_request)
{
	struct bytes request = {0}, container = {0};

	pb_put_string(&container, 1, "GPU-a::s::0");
	pb_put_varint(&container, 3, 1);
	pb_put_message(&request, 1, &container);
	call_with_little_memory("GetPreferredAllocation", &request);
	bytes_free(&container);
	bytes_free(&request);
}
