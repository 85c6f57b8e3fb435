/* The processes that NVML shows: the slice's, with another tenant's beside them on the same GPU. */
#include "tenants.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOREIGN 1000000 /* what the simulated NVML adds to a pid of another namespace */

/* -- lists, of whatever kind and version ---------------------------------------------------------
 */

enum kind { COMPUTE, GRAPHICS, MPS, KINDS };

struct process {
	unsigned pid;
	unsigned long long memory;
};

typedef nvmlReturn_t list_fn(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos);
typedef nvmlReturn_t list_v1_fn(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *infos);

static nvmlReturn_t ask_v1(list_v1_fn *list, nvmlDevice_t device, unsigned *count,
			   struct process *ret_processes)
{
	nvmlProcessInfo_v1_t infos[16];
	nvmlReturn_t result;

	memset(infos, 0xee, sizeof(infos));
	result = list(device, count, ret_processes ? infos : NULL);
	for (unsigned i = 0; ret_processes && i < 16; i++)
		ret_processes[i] = (struct process){infos[i].pid, infos[i].usedGpuMemory};
	return result;
}

static nvmlReturn_t ask_v2(list_fn *list, nvmlDevice_t device, unsigned *count,
			   struct process *ret_processes)
{
	nvmlProcessInfo_t infos[16];
	nvmlReturn_t result;

	memset(infos, 0xee, sizeof(infos));
	result = list(device, count, ret_processes ? infos : NULL);
	for (unsigned i = 0; ret_processes && i < 16; i++)
		ret_processes[i] = (struct process){infos[i].pid, infos[i].usedGpuMemory};
	for (unsigned i = 0; result == NVML_SUCCESS && i < *count; i++) {
		CHECK_EQUAL(infos[i].gpuInstanceId, UINT32_MAX);
		CHECK_EQUAL(infos[i].computeInstanceId, UINT32_MAX);
	}
	return result;
}

static nvmlReturn_t ask_details(enum kind kind, nvmlDevice_t device, unsigned *count,
				struct process *ret_processes)
{
	nvmlProcessDetail_v1_t details[16];
	nvmlProcessDetailList_t list = {.version = NVML_PROCESS_DETAIL_LIST_V1,
					.mode = (unsigned)kind,
					.numProcArrayEntries = *count,
					.procArray = ret_processes ? details : NULL};
	nvmlReturn_t result;

	memset(details, 0xee, sizeof(details));
	result = nvmlDeviceGetRunningProcessDetailList(device, &list);
	*count = list.numProcArrayEntries;
	for (unsigned i = 0; ret_processes && i < 16; i++)
		ret_processes[i] = (struct process){details[i].pid, details[i].usedGpuMemory};
	for (unsigned i = 0; result == NVML_SUCCESS && i < *count; i++) {
		CHECK_EQUAL(details[i].gpuInstanceId, UINT32_MAX);
		CHECK_EQUAL(details[i].computeInstanceId, UINT32_MAX);
		CHECK_EQUAL(details[i].usedGpuCcProtectedMemory, 0);
	}
	return result;
}

#define VERSIONS 4 /* the three of the call, and the list of details */

static nvmlReturn_t ask(enum kind kind, unsigned version, nvmlDevice_t device, unsigned *count,
			struct process *ret_processes)
{
	static list_v1_fn *const v1[] = {nvmlDeviceGetComputeRunningProcesses,
					 nvmlDeviceGetGraphicsRunningProcesses,
					 nvmlDeviceGetMPSComputeRunningProcesses};
	static list_fn *const v2[] = {nvmlDeviceGetComputeRunningProcesses_v2,
				      nvmlDeviceGetGraphicsRunningProcesses_v2,
				      nvmlDeviceGetMPSComputeRunningProcesses_v2};
	static list_fn *const v3[] = {nvmlDeviceGetComputeRunningProcesses_v3,
				      nvmlDeviceGetGraphicsRunningProcesses_v3,
				      nvmlDeviceGetMPSComputeRunningProcesses_v3};

	if (version == 0)
		return ask_v1(v1[kind], device, count, ret_processes);
	if (version == 3)
		return ask_details(kind, device, count, ret_processes);
	return ask_v2(version == 1 ? v2[kind] : v3[kind], device, count, ret_processes);
}

/* -- what is expected ----------------------------------------------------------------------------
 */

static const struct process *find(const struct process *processes, unsigned count, unsigned pid)
{
	for (unsigned i = 0; i < count; i++)
		if (processes[i].pid == pid)
			return &processes[i];
	return NULL;
}

/* The list has these and no others, and keeps to NVML's rules for sizes. */
static void assert_list(enum kind kind, unsigned version, nvmlDevice_t device,
			const struct process *expected, unsigned expected_count)
{
	struct process seen[16];
	unsigned count = 0;

	CHECK_EQUAL(ask(kind, version, device, &count, NULL),
		    expected_count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
	CHECK_EQUAL(count, expected_count);
	if (expected_count) {
		count = expected_count - 1;
		CHECK_EQUAL(ask(kind, version, device, &count, seen), NVML_ERROR_INSUFFICIENT_SIZE);
		CHECK_EQUAL(count, expected_count);
		CHECK_EQUAL(seen[0].pid, 0xeeeeeeee);
		CHECK_EQUAL(ask(kind, version, device, &count, NULL), NVML_ERROR_INVALID_ARGUMENT);
	}
	count = expected_count;
	CHECK_OK(ask(kind, version, device, &count, seen));
	CHECK_EQUAL(count, expected_count);
	count = 16;
	CHECK_OK(ask(kind, version, device, &count, seen));
	CHECK_EQUAL(count, expected_count);
	CHECK_EQUAL(seen[count].pid, 0xeeeeeeee);
	for (unsigned i = 0; i < expected_count; i++) {
		const struct process *process = find(seen, count, expected[i].pid);

		CHECK(process);
		CHECK_EQUAL(process->memory, expected[i].memory);
	}
}

static void assert_lists(enum kind kind, nvmlDevice_t device, const struct process *expected,
			 unsigned count)
{
	for (unsigned version = 0; version < VERSIONS; version++)
		assert_list(kind, version, device, expected, count);
}

/* Ours, by NVML's figures. */
static void list_ours(struct process ret_processes[2])
{
	for (unsigned i = 0; i < 2; i++)
		ret_processes[i] =
			(struct process){(unsigned)members[i].pid, CONTEXT + sizes_mib[i] * MIB};
}

/* -- lists ---------------------------------------------------------------------------------------
 */

TEST(beside_a_stranger)
{
	nvmlDevice_t device = crowd_in_slice();
	struct process ours[2];

	list_ours(ours);
	CHECK_EQUAL(outside_of(0, stranger.pid), CONTEXT + stranger_mib * MIB); /* it is there */
	errno = 77;
	assert_lists(COMPUTE, device, ours, 2);
	CHECK_EQUAL(errno, 77);
	assert_lists(GRAPHICS, device, NULL, 0);
	assert_lists(MPS, device, NULL, 0);
	env_set("VGPU_SIM_NVML_LISTS", "all");
	for (enum kind kind = COMPUTE; kind < KINDS; kind++)
		assert_lists(kind, device, ours, 2);
	member_kill(&members[1]);
	assert_lists(COMPUTE, device, ours, 1);
	end(&members[0]);
	assert_lists(COMPUTE, device, NULL, 0);
	end(&stranger);
}

/* A stranger alone: there is nobody, and no region either. */
TEST(stranger_alone)
{
	nvmlDevice_t device;

	stranger = start(strange_holder, 0, stranger_mib);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "3g");
	CHECK_OK(nvmlInit_v2());
	CHECK_OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
	assert_lists(COMPUTE, device, NULL, 0);
	end(&stranger);
}

TEST(gpu_by_gpu)
{
	struct process ours[2];

	env_set("VGPU_SIM_GPUS", "3x8G");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "3g");
	for (unsigned i = 0; i < 2; i++)
		members[i] = start(holder, i, sizes_mib[i]);
	CHECK_OK(nvmlInit_v2());
	list_ours(ours);
	assert_lists(COMPUTE, device_of(0), &ours[0], 1);
	assert_lists(COMPUTE, device_of(1), &ours[1], 1);
	assert_lists(COMPUTE, device_of(2), NULL, 0);
	env_set("VGPU_SIM_NVML_PIDS", "none"); /* from the region, likewise */
	ours[0].memory += HIDDEN;
	ours[1].memory += HIDDEN;
	assert_lists(COMPUTE, device_of(0), &ours[0], 1);
	assert_lists(COMPUTE, device_of(1), &ours[1], 1);
	assert_lists(COMPUTE, device_of(2), NULL, 0);
	end(&members[0]);
	end(&members[1]);
}

/* In the process that itself uses the GPU. */
TEST(myself)
{
	struct process own = {0};

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "3g");
	stranger = start(strange_holder, 0, stranger_mib);
	cuda_start(0);
	take(50 * MIB);
	CHECK_OK(nvmlInit_v2());
	own = (struct process){(unsigned)getpid(), CONTEXT + 50 * MIB};
	assert_lists(COMPUTE, device_of(0), &own, 1);
	end(&stranger);
}

TEST(no_slice)
{
	nvmlDevice_t device = crowd();
	struct process everybody[3];

	list_ours(everybody);
	everybody[2] = (struct process){(unsigned)stranger.pid, CONTEXT + stranger_mib * MIB};
	env_set("VGPU_SIM_NVML_LISTS", "all");
	for (enum kind kind = COMPUTE; kind < KINDS; kind++)
		assert_lists(kind, device, everybody, 3);
	disperse();
}

TEST(rejected)
{
	nvmlDevice_t device = crowd_in_slice();
	nvmlProcessDetailList_t list = {.version = NVML_PROCESS_DETAIL_LIST_V1, .mode = 3};
	unsigned count = 16;

	for (unsigned version = 0; version < 3; version++)
		CHECK_EQUAL(ask(COMPUTE, version, NULL, &count, NULL), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses(device, NULL, NULL),
		    NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(device, NULL, NULL),
		    NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQUAL(nvmlDeviceGetRunningProcessDetailList(device, &list),
		    NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQUAL(nvmlDeviceGetRunningProcessDetailList(device, NULL),
		    NVML_ERROR_INVALID_ARGUMENT);
	list = (nvmlProcessDetailList_t){.version = NVML_PROCESS_DETAIL_LIST_V1 + (1 << 24)};
	CHECK_EQUAL(nvmlDeviceGetRunningProcessDetailList(device, &list),
		    NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	CHECK_EQUAL(count, 16);
	CHECK_OK(nvmlShutdown());
	for (unsigned version = 0; version < VERSIONS; version++)
		CHECK_EQUAL(ask(COMPUTE, version, device, &count, NULL), NVML_ERROR_UNINITIALIZED);
	disperse();
}

/* -- pids of other namespaces, and missing figures -----------------------------------------------
 */

/* What NVML says cannot be matched: the region's word, of who holds something of the GPU. */
TEST(unknown_pids)
{
	static const char *const pids[] = {"foreign", "none"};
	nvmlDevice_t device = crowd_in_slice();
	struct process ours[2];

	for (unsigned i = 0; i < 2; i++)
		ours[i] = (struct process){(unsigned)members[i].pid,
					   ledger_of(members[i].pid, 0).total};
	CHECK_EQUAL(ours[0].memory, CONTEXT + HIDDEN + sizes_mib[0] * MIB);
	for (unsigned i = 0; i < 2; i++) {
		env_set("VGPU_SIM_NVML_PIDS", pids[i]);
		assert_lists(COMPUTE, device, ours, 2);
		assert_lists(GRAPHICS, device, NULL, 0);
		assert_lists(MPS, device, NULL, 0);
	}
	member_kill(&members[1]);
	assert_lists(COMPUTE, device, ours, 1);
	end(&members[0]);
	assert_lists(COMPUTE, device, NULL, 0);
	end(&stranger);
}

static struct vgpu_region_file *writable_ledger(void)
{
	int fd = open(scene_path("slice.cache"), O_RDWR | O_CLOEXEC);
	void *file = mmap(NULL, sizeof(struct vgpu_region_file), PROT_READ | PROT_WRITE, MAP_SHARED,
			  fd, 0);

	CHECK(fd >= 0 && file != MAP_FAILED);
	close(fd);
	return file;
}

/*
 * NVML lists the host's pids, and a monitor has written those of our processes into the region. The
 * second of them has in its container the number that the stranger has on the host.
 */
TEST(host_pids)
{
	nvmlDevice_t device = crowd_in_slice();
	struct vgpu_region_file *file = writable_ledger();
	int slots[2] = {ledger_slot(members[0].pid), ledger_slot(members[1].pid)};
	nvmlAccountingStats_t stats;
	struct process ours[2];
	unsigned count = 16, pids[16];

	list_ours(ours);
	ours[1].pid = (unsigned)stranger.pid + FOREIGN;
	for (unsigned i = 0; i < 2; i++)
		file->hami.slots[slots[i]].hostpid = members[i].pid + FOREIGN;
	file->hami.slots[slots[1]].pid = (int)ours[1].pid;
	env_set("VGPU_SIM_NVML_PIDS", "foreign");
	assert_lists(COMPUTE, device, ours, 2);
	CHECK_OK(nvmlDeviceGetAccountingPids(device, &count, pids));
	CHECK_EQUAL(count, 2);
	CHECK_OK(nvmlDeviceGetAccountingStats(device, ours[0].pid, &stats));
	CHECK_EQUAL(stats.maxMemoryUsage, ours[0].memory);
	CHECK_OK(nvmlDeviceGetAccountingStats(device, ours[0].pid + FOREIGN, &stats));
	disperse();
}

/* Without a figure of NVML's the ledger's is shown; in a list without memory it is no matter. */
TEST(no_figures)
{
	nvmlDevice_t device = crowd_in_slice();
	struct process ours[2];
	unsigned count = 16, pids[16];

	env_set("VGPU_SIM_NVML_FIGURES", "none");
	for (unsigned i = 0; i < 2; i++)
		ours[i] = (struct process){(unsigned)members[i].pid,
					   ledger_of(members[i].pid, 0).total};
	assert_lists(COMPUTE, device, ours, 2);
	CHECK_OK(nvmlDeviceGetAccountingPids(device, &count, pids));
	CHECK_EQUAL(count, 2);
	disperse();
}

/* More than NVML is first asked for: the list is the slice's all the same. */
TEST(long_list)
{
	nvmlDevice_t device;
	struct process ours[2];

	env_set("VGPU_SIM_NVML_MANY", "3000");
	device = crowd_in_slice();
	list_ours(ours);
	assert_lists(COMPUTE, device, ours, 2);
	disperse();
}

/* -- processes and threads that ask --------------------------------------------------------------
 */

TEST(after_fork)
{
	nvmlDevice_t device = crowd_in_slice();
	struct process ours[2];
	pid_t child;

	list_ours(ours);
	assert_lists(COMPUTE, device, ours, 2);
	child = fork();
	if (child == 0) {
		assert_lists(COMPUTE, device, ours, 2);
		_exit(0);
	}
	expect_ended(child);
	disperse();
}

#define THREADS 6

static bool stop; /* atomic */

/* The first of ours stays; others come and go, and the stranger is never seen. */
static void *watch(void *device)
{
	struct process seen[16];

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		unsigned count = 16;

		CHECK_OK(ask(COMPUTE, 2, device, &count, seen));
		CHECK(count >= 1 && count <= 3);
		CHECK(find(seen, count, (unsigned)members[0].pid));
		CHECK(!find(seen, count, (unsigned)stranger.pid));
	}
	return NULL;
}

/* It attaches for itself; started by a process that has read the slice, so it is one of ours. */
TEST(threads_at_once)
{
	nvmlDevice_t device = crowd_in_slice();
	pthread_t threads[THREADS];

	for (unsigned i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, watch, device) == 0);
	for (unsigned round = 0; round < 10; round++) {
		struct member other = start(holder, 0, 10);

		if (round % 2)
			member_kill(&other);
		else
			end(&other);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	disperse();
}
