/*
 * NVML's processes: those of the slice. Everything that lists processes, or tells something of one,
 * shows the processes that live in the slice's region, and no others.
 *
 * How it works. NVML is asked for its whole list, into memory of our own; what is not the slice's
 * is taken out, and the caller gets what is left, by NVML's own rules for sizes: room that does not
 * suffice is an error that says how much does. The shapes of the lists differ, the way does not: a
 * `struct shape` says where in a record the pid and the memory are, and a `struct question` how to
 * ask.
 *
 * Which are the slice's. A slot of the region has the pid of its process as the process knows it,
 * and the host's where that is known. NVML gives pids of the caller's namespace, or, by older
 * drivers, the host's. If any of a list's pids is that of a slot on the host and not in its
 * container, then it is a list of host's pids and only those count; otherwise those of the slots
 * do. Shown is the slot's pid, which is what ps(1) in the container calls the process.
 *
 * Where none of NVML's pids is known (an older driver, in a container whose host's pids nobody
 * wrote into the region), the compute lists are made of the region: each process that holds
 * something of the GPU, with what the ledger has for it. The ledger's total also stands in where
 * NVML has no figure.
 *
 * Limits of this. pids are not unique across namespaces. If NVML lists the host's pids, the slots'
 * are not known, and another tenant's process has by chance the number that one of ours has in its
 * container, then that one is shown in the place of ours, and ours are not listed from the region.
 * And processes of the slice that have ended are forgotten: accounting shows the living only.
 *
 * No locks and no state: each question looks into the region anew. Nothing of ours is held while
 * NVML is asked.
 */
#include <stddef.h>
#include <string.h>

#include "hooks.h"
#include "nvml_view.h"
#include "sys.h"
#include "view.h"

#define ROOM_FIRST   VGPU_SLOTS_MAX /* records that NVML is first asked for */
#define ROOM_MAX     65536
#define MODE_COMPUTE 0    /* of nvmlProcessDetailList_t */
#define NO_INSTANCE  0xff /* each byte of an instance's number, for none */

/* Where things are in a record, in bytes. 0: it has none; only a pid may be at 0. */
struct shape {
	size_t size, pid, memory, instances;
};

#define SHAPE_WITH_MEMORY(type)                                                   \
	{                                                                         \
		sizeof(type), offsetof(type, pid), offsetof(type, usedGpuMemory), \
			offsetof(type, gpuInstanceId)                             \
	}

static const struct shape info_v1 = {sizeof(nvmlProcessInfo_v1_t),
				     offsetof(nvmlProcessInfo_v1_t, pid),
				     offsetof(nvmlProcessInfo_v1_t, usedGpuMemory), 0};
static const struct shape info_v2 = SHAPE_WITH_MEMORY(nvmlProcessInfo_v2_t);
static const struct shape detail = SHAPE_WITH_MEMORY(nvmlProcessDetail_v1_t);
static const struct shape sample = {sizeof(nvmlProcessUtilizationSample_t),
				    offsetof(nvmlProcessUtilizationSample_t, pid), 0, 0};
static const struct shape utilization_info = {sizeof(nvmlProcessUtilizationInfo_v1_t),
					      offsetof(nvmlProcessUtilizationInfo_v1_t, pid), 0, 0};
static const struct shape plain_pid = {sizeof(unsigned), 0, 0, 0};

struct question {
	/* NVML's answer: *count is the room for records, and then how many there are. */
	nvmlReturn_t (*ask)(const struct question *question, unsigned *count, void *records);
	const struct shape *shape;
	nvmlDevice_t device;
	const void *more; /* of the call's arguments */
	bool listed;      /* of the region, where NVML's pids mean nothing here */
	bool sampled;     /* to have no record is an error, to give no array is to ask how many */
};

/* Memory for one question: not on the stack, which may be a small thread's. */
struct scratch {
	size_t bytes;
	unsigned own_count;
	struct region_process own[VGPU_SLOTS_MAX]; /* the slice's */
	unsigned char records[] __attribute__((aligned(8)));
};

static struct scratch *scratch_take(size_t records_bytes)
{
	size_t bytes = sizeof(struct scratch) + records_bytes;
	struct scratch *scratch;
	void *memory;

	if (sys_map_private(bytes, &memory) != 0)
		return NULL;
	scratch = memory;
	scratch->bytes = bytes;
	return scratch;
}

static void scratch_give(struct scratch *scratch)
{
	sys_unmap(scratch, scratch->bytes);
}

/* -- which are the slice's --------------------------------------------------------------------- */

static const struct region_process *find_own(const struct scratch *scratch, unsigned pid,
					     bool on_host)
{
	for (unsigned i = 0; i < scratch->own_count; i++) {
		const struct region_process *own = &scratch->own[i];

		if (pid && (unsigned)(on_host ? own->hostpid : own->pid) == pid)
			return own;
	}
	return NULL;
}

static unsigned pid_of(const struct shape *shape, const unsigned char *record)
{
	unsigned pid;

	memcpy(&pid, record + shape->pid, sizeof(pid));
	return pid;
}

static bool are_host_pids(const struct shape *shape, const struct scratch *scratch, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		unsigned pid = pid_of(shape, scratch->records + i * shape->size);
		const struct region_process *own = find_own(scratch, pid, true);

		if (own && own->pid != own->hostpid)
			return true;
	}
	return false;
}

static void set_memory(const struct shape *shape, unsigned char *record, unsigned long long bytes)
{
	memcpy(record + shape->memory, &bytes, sizeof(bytes));
}

static bool lacks_memory(const struct shape *shape, const unsigned char *record)
{
	unsigned long long bytes = 0;

	if (shape->memory)
		memcpy(&bytes, record + shape->memory, sizeof(bytes));
	return bytes == NVML_VALUE_NOT_AVAILABLE;
}

/* Takes out of NVML's records what is not the slice's; how many are left. */
static unsigned keep_own(const struct shape *shape, struct scratch *scratch, unsigned count)
{
	bool on_host = are_host_pids(shape, scratch, count);
	unsigned kept = 0;

	for (unsigned i = 0; i < count; i++) {
		unsigned char *record = scratch->records + i * shape->size;
		const struct region_process *own =
			find_own(scratch, pid_of(shape, record), on_host);

		if (!own)
			continue;
		memcpy(record + shape->pid, &own->pid, sizeof(own->pid));
		if (lacks_memory(shape, record) && own->bytes)
			set_memory(shape, record, own->bytes);
		memmove(scratch->records + kept++ * shape->size, record, shape->size);
	}
	return kept;
}

/* Makes the records of what the region has; there is room for all. How many there are. */
static unsigned list_own(const struct shape *shape, struct scratch *scratch)
{
	unsigned listed = 0;

	for (unsigned i = 0; i < scratch->own_count; i++) {
		const struct region_process *own = &scratch->own[i];
		unsigned char *record = scratch->records + listed * shape->size;

		if (!own->bytes)
			continue;
		memset(record, 0, shape->size);
		memcpy(record + shape->pid, &own->pid, sizeof(own->pid));
		set_memory(shape, record, own->bytes);
		if (shape->instances) /* the GPU's and the compute instance's, side by side */
			memset(record + shape->instances, NO_INSTANCE, 2 * sizeof(unsigned));
		listed++;
	}
	return listed;
}

/* -- the way of every list --------------------------------------------------------------------- */

/* NVML's whole list: its result, and with NVML_SUCCESS the memory that it is in. */
static nvmlReturn_t ask_nvml(const struct question *question, struct scratch **ret_scratch,
			     unsigned *ret_count)
{
	unsigned room = ROOM_FIRST, count;
	nvmlReturn_t result;

	for (;;) {
		struct scratch *scratch = scratch_take(room * question->shape->size);

		if (!scratch)
			return NVML_ERROR_MEMORY;
		count = room;
		result = question->ask(question, &count, scratch->records);
		if (result == NVML_SUCCESS) {
			*ret_scratch = scratch;
			*ret_count = count < room ? count : room;
			return NVML_SUCCESS;
		}
		scratch_give(scratch);
		if (result != NVML_ERROR_INSUFFICIENT_SIZE)
			return result;
		if (room == ROOM_MAX)
			return NVML_ERROR_UNKNOWN; /* the number would not be the slice's */
		room = count > room && count < ROOM_MAX ? count + ROOM_FIRST : ROOM_MAX;
		room = room < ROOM_MAX ? room : ROOM_MAX;
	}
}

/* Makes of NVML's list the slice's; how many there are. */
static unsigned cut_to_slice(const struct question *question, struct scratch *scratch,
			     unsigned count)
{
	char uuid[VGPU_UUID_LEN];
	bool known = nvml_device_uuid(question->device, uuid);

	scratch->own_count = view_processes(known ? uuid : NULL, scratch->own);
	count = keep_own(question->shape, scratch, count);
	if (count == 0 && question->listed)
		count = list_own(question->shape, scratch);
	return count;
}

/* Answers the question as NVML would if there were nobody but the slice. */
static nvmlReturn_t show(const struct question *question, unsigned *count, void *records)
{
	unsigned room = question->sampled && !records ? 0 : *count, found = 0;
	struct scratch *scratch;
	nvmlReturn_t result = ask_nvml(question, &scratch, &found);

	if (result != NVML_SUCCESS)
		return result;
	found = cut_to_slice(question, scratch, found);
	*count = found;
	if (question->sampled && found == 0)
		result = NVML_ERROR_NOT_FOUND;
	else if (found > room)
		result = NVML_ERROR_INSUFFICIENT_SIZE;
	else if (found > 0 && !records)
		result = NVML_ERROR_INVALID_ARGUMENT;
	else if (found > 0)
		memcpy(records, scratch->records, found * question->shape->size);
	scratch_give(scratch);
	return result;
}

/* -- lists of running processes ---------------------------------------------------------------- */

#define RUNNING(name, record, its_shape, is_listed)                                           \
	static nvmlReturn_t ask_##name(const struct question *question, unsigned *count,      \
				       void *records)                                         \
	{                                                                                     \
		return nvml.name(question->device, count, records);                           \
	}                                                                                     \
                                                                                              \
	nvmlReturn_t name(nvmlDevice_t device, unsigned int *infoCount, record *infos)        \
	{                                                                                     \
		const struct question question = {.ask = ask_##name,                          \
						  .shape = &(its_shape),                      \
						  .device = device,                           \
						  .listed = is_listed};                       \
                                                                                              \
		return nvml_shows_slice() && infoCount ? show(&question, infoCount, infos)    \
						       : nvml.name(device, infoCount, infos); \
	}

RUNNING(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, info_v1, true)
RUNNING(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, info_v2, true)
RUNNING(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, info_v2, true)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, info_v1, false)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, info_v2, false)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, info_v2, false)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, info_v1, false)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, info_v2, false)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, info_v2, false)

static nvmlReturn_t ask_details(const struct question *question, unsigned *count, void *records)
{
	nvmlProcessDetailList_t list = *(const nvmlProcessDetailList_t *)question->more;
	nvmlReturn_t result;

	list.numProcArrayEntries = *count;
	list.procArray = records;
	result = nvml.nvmlDeviceGetRunningProcessDetailList(question->device, &list);
	*count = list.numProcArrayEntries;
	return result;
}

/* A version whose layout we do not know cannot be cut to the slice, so it is one that there is not.
 */
nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
						   nvmlProcessDetailList_t *plist)
{
	struct question question = {.ask = ask_details, .shape = &detail, .device = device};

	if (!nvml_shows_slice() || !plist)
		return nvml.nvmlDeviceGetRunningProcessDetailList(device, plist);
	if (plist->version != NVML_PROCESS_DETAIL_LIST_V1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	question.more = plist;
	question.listed = plist->mode == MODE_COMPUTE;
	return show(&question, &plist->numProcArrayEntries, plist->procArray);
}

/* -- utilization ------------------------------------------------------------------------------- */

static nvmlReturn_t ask_samples(const struct question *question, unsigned *count, void *records)
{
	const unsigned long long *since = question->more;

	return nvml.nvmlDeviceGetProcessUtilization(question->device, records, count, *since);
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
					     nvmlProcessUtilizationSample_t *utilization,
					     unsigned int *processSamplesCount,
					     unsigned long long lastSeenTimeStamp)
{
	const struct question question = {.ask = ask_samples,
					  .shape = &sample,
					  .device = device,
					  .more = &lastSeenTimeStamp,
					  .sampled = true};

	if (!nvml_shows_slice() || !processSamplesCount)
		return nvml.nvmlDeviceGetProcessUtilization(device, utilization,
							    processSamplesCount, lastSeenTimeStamp);
	return show(&question, processSamplesCount, utilization);
}

static nvmlReturn_t ask_utilization(const struct question *question, unsigned *count, void *records)
{
	nvmlProcessesUtilizationInfo_t list =
		*(const nvmlProcessesUtilizationInfo_t *)question->more;
	nvmlReturn_t result;

	list.processSamplesCount = *count;
	list.procUtilArray = records;
	result = nvml.nvmlDeviceGetProcessesUtilizationInfo(question->device, &list);
	*count = list.processSamplesCount;
	return result;
}

/* Unknown versions as above. */
nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
						   nvmlProcessesUtilizationInfo_t *procesesUtilInfo)
{
	const struct question question = {.ask = ask_utilization,
					  .shape = &utilization_info,
					  .device = device,
					  .more = procesesUtilInfo,
					  .sampled = true};

	if (!nvml_shows_slice() || !procesesUtilInfo)
		return nvml.nvmlDeviceGetProcessesUtilizationInfo(device, procesesUtilInfo);
	if (procesesUtilInfo->version != NVML_PROCESSES_UTILIZATION_V1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	return show(&question, &procesesUtilInfo->processSamplesCount,
		    procesesUtilInfo->procUtilArray);
}

/* -- accounting, and one process --------------------------------------------------------------- */

static nvmlReturn_t ask_pids(const struct question *question, unsigned *count, void *records)
{
	return nvml.nvmlDeviceGetAccountingPids(question->device, count, records);
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
					 unsigned int *pids)
{
	const struct question question = {.ask = ask_pids, .shape = &plain_pid, .device = device};

	return nvml_shows_slice() && count ? show(&question, count, pids)
					   : nvml.nvmlDeviceGetAccountingPids(device, count, pids);
}

/* The slice's process that a caller means with a pid, its own or the host's. */
static bool find_process(unsigned pid, struct region_process *ret_process)
{
	struct scratch *scratch = scratch_take(0);
	const struct region_process *own;

	if (!scratch)
		return false;
	scratch->own_count = view_processes(NULL, scratch->own);
	own = find_own(scratch, pid, false);
	if (!own)
		own = find_own(scratch, pid, true);
	if (own)
		*ret_process = *own;
	scratch_give(scratch);
	return own != NULL;
}

/* By the pid that we show, or else by the one that NVML may have for it. */
nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
					  nvmlAccountingStats_t *stats)
{
	struct region_process own;
	nvmlReturn_t result;

	if (!nvml_shows_slice() || !stats)
		return nvml.nvmlDeviceGetAccountingStats(device, pid, stats);
	if (!find_process(pid, &own))
		return NVML_ERROR_NOT_FOUND;
	result = nvml.nvmlDeviceGetAccountingStats(device, (unsigned)own.pid, stats);
	if (result == NVML_ERROR_NOT_FOUND && own.hostpid && own.hostpid != own.pid)
		result = nvml.nvmlDeviceGetAccountingStats(device, (unsigned)own.hostpid, stats);
	return result;
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
	struct region_process own;
	nvmlReturn_t result;

	if (!nvml_shows_slice() || !name || !length)
		return nvml.nvmlSystemGetProcessName(pid, name, length);
	if (!find_process(pid, &own))
		return NVML_ERROR_NOT_FOUND;
	result = nvml.nvmlSystemGetProcessName((unsigned)own.pid, name, length);
	if (result == NVML_ERROR_NOT_FOUND && own.hostpid && own.hostpid != own.pid)
		result = nvml.nvmlSystemGetProcessName((unsigned)own.hostpid, name, length);
	return result;
}
