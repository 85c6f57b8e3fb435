/*
 * Fuzzes what vgpu-dra reads. The first byte of the input chooses: a ResourceClaim of the API
 * server, or a request of the kubelet. An answer must be a message, with an entry for each claim; a
 * share of a claim must be one that a policy can hold to.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "claim.h"
#include "input.h"
#include "methods.h"
#include "say.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct claim_id id = {"team", "alice", "u-1"};

static void check_claim(const struct claim *claim)
{
	check(claim->count >= 1 && claim->count <= CLAIM_DEVICES_MAX);
	for (unsigned i = 0; i < claim->count; i++) {
		const struct claim_device *device = &claim->device[i];

		check(device->memory_bytes <= INT64_MAX && device->cores_pct <= 100);
		check(*device->request && *device->pool && *device->device);
		check(!strpbrk(device->device, "/.") && !strchr(device->pool, '/'));
	}
}

/* In the place of prepare.c's: no file is made. */
int prepare_claim(const struct prepare *prepare, const struct claim_id *asked,
		  struct claim *ret_claim, struct fault *fault)
{
	(void)prepare;
	check(claim_id_is_good(asked) && !strchr(asked->uid, '/') && !strchr(asked->uid, '.'));
	if (asked->uid[0] == 'x')
		return fault_set(fault, -EIO, "a reason that ends in the middle of \xc3");
	memset(ret_claim, 0, sizeof(*ret_claim));
	ret_claim->count = 2;
	strcpy(ret_claim->device[0].request, "r");
	strcpy(ret_claim->device[1].request, asked->name[0] == 'x' ? "r" : "s");
	return 0;
}

int prepare_undo(const struct prepare *prepare, const struct claim_id *asked, struct fault *fault)
{
	(void)prepare;
	check(claim_id_is_good(asked));
	return asked->uid[0] == 'x' ? fault_set(fault, -EIO, "a reason") : 0;
}

/* In the place of users.c's: no kubelet is asked. */
void users_soon(struct users *users)
{
	(void)users;
}

void prepare_claim_cdi(const struct claim_id *asked, char ret_name[PREPARE_ID_LEN])
{
	(void)asked;
	strcpy(ret_name, "vgpu.local/slice=claim");
}

void prepare_gpu_cdi(const struct prepare *prepare, const struct claim_device *device,
		     char ret_name[PREPARE_ID_LEN])
{
	(void)prepare, (void)device;
	*ret_name = '\0';
}

void say(int level, const char *format, ...)
{
	(void)level, (void)format;
}

static void registered(void *arg)
{
	(void)arg;
}

static void fuzz_claim(const char *text, size_t len)
{
	struct claim claim, again;
	char *excerpt;

	if (claim_parse(text, len, &id, "gpu.vgpu.dev", &claim, NULL))
		return;
	check_claim(&claim);
	excerpt = claim_excerpt(text, len, "gpu.vgpu.dev");
	check(excerpt && !claim_parse(excerpt, strlen(excerpt), &id, "gpu.vgpu.dev", &again, NULL));
	check(again.count == claim.count &&
	      !memcmp(again.device, claim.device, claim.count * sizeof(claim.device[0])));
	free(excerpt);
}

static void check_answer(struct pb_message answer)
{
	struct pb_field field;
	int more;

	while ((more = pb_next(&answer, &field)) > 0)
		check(field.type == PB_BYTES);
	check(more == 0);
}

static void fuzz_request(unsigned chosen, struct pb_message request)
{
	static struct prepare prepare;
	struct methods_registration registration = {"gpu.vgpu.dev", "/dra.sock", registered, NULL};
	bool dra = chosen % 4 < 2;
	const struct grpc_method *method = &(dra ? methods_dra : methods_registration)[chosen % 2];
	struct bytes answer = {0};
	struct fault fault = {""};
	enum grpc_status status = method->answer(dra ? (void *)&prepare : (void *)&registration,
						 request, &answer, &fault);

	check((status == GRPC_OK) == (fault.text[0] == '\0'));
	if (status == GRPC_OK && answer.len)
		check_answer((struct pb_message){answer.data, answer.data + answer.len});
	bytes_free(&answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy;

	if (size < 2)
		return 0;
	copy = copy_input(data + 1, size - 1);
	if (data[0] >= 128)
		fuzz_request(data[0], (struct pb_message){copy, copy + size - 1});
	else
		fuzz_claim((const char *)copy, size - 1);
	free(copy);
	return 0;
}
