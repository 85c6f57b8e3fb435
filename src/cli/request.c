/* Checks requests, and turns them into policies. */
#include "request.h"

#include <string.h>
#include <unistd.h>

#include "amounts.h"
#include "cli.h"

int request_read(const struct cli_line *line, struct run_request *request)
{
	const char *gang = line->value[REQUEST_GANG];
	struct fault fault = {""};

	request->memory = line->value[REQUEST_MEMORY];
	request->cores = line->value[REQUEST_CORES];
	request->burst = line->value[REQUEST_BURST];
	request->gpus = line->value[REQUEST_GPUS];
	request->oversubscribe = line->value[REQUEST_OVERSUBSCRIBE] != NULL;
	request->gang_word = gang;
	if (request->gpus && gpus_check_list(request->gpus, &fault))
		return cli_fail(CLI_USAGE, "--gpus: %s", fault.text);
	return gang ? amounts_gang(gang, &request->gang) : 0;
}

int request_check(const struct run_request *request, bool *ret_limits)
{
	bool memory = false, cores = false;
	int status = request->memory ? amounts_check_memory(request->memory, &memory) : 0;

	if (!status && request->cores)
		status = amounts_check_cores(request->cores, &cores);
	if (!status && request->burst)
		status = amounts_check_burst(request->burst);
	*ret_limits = memory || cores;
	return status;
}

int request_policy(const struct run_request *request, const struct gpus *all,
		   struct policy *ret_policy)
{
	uint64_t memory_bytes[VGPU_DEVICES_MAX] = {0}, burst_ns[VGPU_DEVICES_MAX] = {0};
	struct policy_cores cores[VGPU_DEVICES_MAX] = {{0}};
	struct fault fault = {""};
	struct gpus gpus;
	int status;

	if (gpus_select(all, request->gpus ? request->gpus : "all", &gpus, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	if (gpus.count > VGPU_DEVICES_MAX)
		return cli_fail(CLI_FAILED,
				"a slice has at most %d GPUs, and these are %u: choose with --gpus",
				VGPU_DEVICES_MAX, gpus.count);
	memset(ret_policy, 0, sizeof(*ret_policy));
	ret_policy->oversubscribe = request->oversubscribe;
	ret_policy->gang = request->gang;
	ret_policy->has_group = geteuid() == 0; /* every user may enter root's directory */
	ret_policy->group = request->group;
	ret_policy->device_count = gpus.count;
	status = request->memory ? amounts_memory(request->memory, &gpus, request->oversubscribe,
						  memory_bytes)
				 : 0;
	if (!status && request->cores)
		status = amounts_cores(request->cores, &gpus, cores);
	if (!status && request->burst)
		status = amounts_burst(request->burst, &gpus, burst_ns);
	for (unsigned i = 0; i < gpus.count; i++) {
		memcpy(ret_policy->device[i].uuid, gpus.gpu[i].uuid, VGPU_UUID_LEN);
		ret_policy->device[i].memory_bytes = memory_bytes[i];
		ret_policy->device[i].cores_pct = cores[i].pct;
		ret_policy->device[i].cores_most_pct = cores[i].most_pct;
		ret_policy->device[i].burst_ns = burst_ns[i];
	}
	return status;
}
