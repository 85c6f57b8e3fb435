/*
 * NVML's processes. Every call that lists processes, or reports on one, shows the processes that
 * live in the slice's region, and no others.
 *
 * How it works. NVML's whole list is read into memory of our own. Processes of other slices are
 * removed, and the caller gets the rest by NVML's own rules. A buffer that is too small is an
 * error, and the caller learns the size that it needs. The lists have different records. A `struct
 * shape` says where in a record the pid and the memory are, and a `struct question` how to ask for
 * the list.
 *
 * Which processes are the slice's. A slot of the region has its process's pid in the process's own
 * pid namespace, and on the host where that is known. NVML gives pids of the caller's namespace;
 * older drivers give the host's. If a pid of the list is a slot's pid on the host, and not in the
 * slot's container, the list has the host's pids. Then only the slots' pids on the host are
 * compared, and otherwise the pids in the container. The caller sees the slot's own pid, as ps(1)
 * in the container shows it.
 *
 * With an older driver, in a container whose pids on the host are not in the region, no pid of the
 * list is known. Then the lists of compute processes are made from the region: each process that
 * holds memory of the GPU, with the ledger's figure. The ledger's total also replaces a figure that
 * NVML does not have.
 *
 * Limits of this. Pids are not unique across namespaces. NVML may list the host's pids while those
 * of the slots are not known. Another tenant's process may then have on the host the pid that a
 * process of this slice has in its container. In that case that process is shown in place of this
 * slice's, and the list is not made from the region. Accounting shows living processes only.
 *
 * There are no locks and no state: each query reads the region again. No lock of ours is held while
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

/* The offsets of fields in a record. 0: the record has no such field, except that a pid may be at
 * 0. */
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
	/* Calls NVML. *count: how many records there is room for; afterwards, how many there are.
	 */
	nvmlReturn_t (*ask)(const struct question *question, unsigned *count, void *records);
	const struct shape *shape;
	nvmlDevice_t device;
	const void *more; /* further arguments of the call */
	bool listed;      /* the list may be made from the region, if no pid of NVML's is known */
	bool sampled;     /* an empty list is an error; a NULL array asks for the number */
};

/* Memory for one query. It is not on the stack, as a thread may have a small one. */
struct scratch {
	size_t bytes;
	unsigned own_count;
	struct region_process own[VGPU_SLOTS_MAX]; /* the slice's processes */
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

/* Removes records of processes that are not the slice's. Returns how many are left. */
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

/* Makes records from the region; there is room for all. Returns how many there are. */
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
		if (shape->instances) /* a GPU instance's number and a compute instance's */
			memset(record + shape->instances, NO_INSTANCE, 2 * sizeof(unsigned));
		listed++;
	}
	return listed;
}

/* -- the way of every list --------------------------------------------------------------------- */

/* Reads NVML's whole list. Returns NVML's result; with NVML_SUCCESS the list is in *ret_scratch. */
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
			return NVML_ERROR_UNKNOWN; /* NVML's number counts other slices, too */
		room = count > room && count < ROOM_MAX ? count + ROOM_FIRST : ROOM_MAX;
		room = room < ROOM_MAX ? room : ROOM_MAX;
	}
}

/* Reduces NVML's list to the slice's processes. Returns how many there are. */
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

/* Answers the query as NVML would if the machine had only the slice's processes. */
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

/* A list of a version whose layout is not known cannot be reduced to the slice. So the call answers
 * as for a version that NVML does not have. */
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

/* A version whose layout is not known is answered as one that NVML does not have. */
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

/* Finds the slice's process with that pid, in its own namespace or on the host. */
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

/* NVML is asked with the given pid, and then with the other pid that it may have for the process.
 */
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
