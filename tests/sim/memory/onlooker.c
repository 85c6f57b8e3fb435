/*
 * Asks NVML, and never uses CUDA. Without the library it sees what the host sees; with it, what a
 * monitor in the container does. It ends when its wire is closed.
 */
#include <stdio.h>
#include <unistd.h>

#include "nvml_abi.h"
#include "onlooker.h"
#include "peak.h"

#define NVML_HOOK(name, parameters, arguments) nvmlReturn_t name parameters;
#define NVML_CALL(name, parameters)            nvmlReturn_t name parameters;
#include "nvml.def"

#define PROCESSES_MAX 256

static struct answer answer_memory(nvmlDevice_t device)
{
	nvmlMemory_t memory = {0};
	int result = (int)nvmlDeviceGetMemoryInfo(device, &memory);

	return (struct answer){result, memory.total, memory.free, memory.used};
}

static struct answer answer_memory_v2(nvmlDevice_t device)
{
	nvmlMemory_v2_t memory = {.version = NVML_MEMORY_V2};
	int result = (int)nvmlDeviceGetMemoryInfo_v2(device, &memory);

	return (struct answer){result, memory.total, memory.free, memory.used + memory.reserved};
}

static struct answer answer_process(nvmlDevice_t device, int pid)
{
	static nvmlProcessInfo_t processes[PROCESSES_MAX];
	unsigned count = PROCESSES_MAX;
	struct answer answer = {
		.result = (int)nvmlDeviceGetComputeRunningProcesses_v3(device, &count, processes)};

	for (unsigned i = 0; answer.result == NVML_SUCCESS && i < count; i++)
		if (processes[i].pid == (unsigned)pid)
			answer.used = processes[i].usedGpuMemory;
	return answer;
}

static struct answer answer_peak(nvmlDevice_t device, unsigned gpu)
{
	struct answer answer = answer_memory(device);

	answer.used = vgpu_sim_peak(gpu);
	return answer;
}

#define WIRE 3

int main(void)
{
	struct answer answer;
	struct question question;
	nvmlDevice_t device;
	char uuid[64];

	if (nvmlInit_v2() != NVML_SUCCESS)
		return 1;
	while (read(WIRE, &question, sizeof(question)) == sizeof(question)) {
		/* By UUID: with the library, indexes are the slice's. */
		snprintf(uuid, sizeof(uuid), "GPU-51300000-0000-4000-8000-%012x", question.gpu);
		if (nvmlDeviceGetHandleByUUID(uuid, &device) != NVML_SUCCESS)
			return 1;
		switch (question.kind) {
		case QUESTION_MEMORY:
			answer = answer_memory(device);
			break;
		case QUESTION_MEMORY_V2:
			answer = answer_memory_v2(device);
			break;
		case QUESTION_PROCESS:
			answer = answer_process(device, question.pid);
			break;
		case QUESTION_PEAK:
			answer = answer_peak(device, question.gpu);
			break;
		default:
			return 1;
		}
		if (write(WIRE, &answer, sizeof(answer)) != sizeof(answer))
			return 1;
	}
	return 0;
}
