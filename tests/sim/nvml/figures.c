/* What NVML tells of single processes: utilization, accounting, names. Of the slice's only. */
#include "tenants.h"

/* -- utilization ---------------------------------------------------------------------------------
 */

static bool is_ours(unsigned pid)
{
	return pid == (unsigned)members[0].pid || pid == (unsigned)members[1].pid;
}

TEST(samples)
{
	nvmlDevice_t device = crowd_in_slice();
	nvmlProcessUtilizationSample_t seen[4];
	unsigned count = 0;

	CHECK_EQUAL(nvmlDeviceGetProcessUtilization(device, NULL, &count, 0),
		    NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK_EQUAL(count, 2);
	CHECK_EQUAL(nvmlDeviceGetProcessUtilization(device, NULL, &count, 0),
		    NVML_ERROR_INSUFFICIENT_SIZE);
	count = 1;
	CHECK_EQUAL(nvmlDeviceGetProcessUtilization(device, seen, &count, 0),
		    NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK_EQUAL(count, 2);
	CHECK_OK(nvmlDeviceGetProcessUtilization(device, seen, &count, 0));
	CHECK_EQUAL(count, 2);
	for (unsigned i = 0; i < 2; i++) {
		CHECK(is_ours(seen[i].pid) && seen[i].pid != seen[!i].pid);
		CHECK_EQUAL(seen[i].smUtil, 0); /* nothing was launched */
		CHECK(seen[i].timeStamp > 0);
	}
	count = 4;
	CHECK_EQUAL(nvmlDeviceGetProcessUtilization(device, seen, &count, ~0ull),
		    NVML_ERROR_NOT_FOUND);
	CHECK_EQUAL(nvmlDeviceGetProcessUtilization(device, seen, NULL, 0),
		    NVML_ERROR_INVALID_ARGUMENT);
	end(&members[0]);
	end(&members[1]);
	count = 4;
	CHECK_EQUAL(nvmlDeviceGetProcessUtilization(device, seen, &count, 0), NVML_ERROR_NOT_FOUND);
	end(&stranger);
}

TEST(samples_of_all)
{
	nvmlDevice_t device = crowd_in_slice();
	nvmlProcessUtilizationInfo_v1_t seen[4];
	nvmlProcessesUtilizationInfo_t info = {.version = NVML_PROCESSES_UTILIZATION_V1};

	CHECK_EQUAL(nvmlDeviceGetProcessesUtilizationInfo(device, &info),
		    NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK_EQUAL(info.processSamplesCount, 2);
	info.procUtilArray = seen;
	CHECK_OK(nvmlDeviceGetProcessesUtilizationInfo(device, &info));
	CHECK_EQUAL(info.processSamplesCount, 2);
	CHECK(info.procUtilArray == seen);
	for (unsigned i = 0; i < 2; i++) {
		CHECK(is_ours(seen[i].pid) && seen[i].pid != seen[!i].pid);
		CHECK_EQUAL(seen[i].smUtil, 0); /* nothing was launched */
	}
	info.processSamplesCount = 1;
	CHECK_EQUAL(nvmlDeviceGetProcessesUtilizationInfo(device, &info),
		    NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK_EQUAL(info.processSamplesCount, 2);
	info.lastSeenTimeStamp = ~0ull;
	CHECK_EQUAL(nvmlDeviceGetProcessesUtilizationInfo(device, &info), NVML_ERROR_NOT_FOUND);
	info.version++;
	CHECK_EQUAL(nvmlDeviceGetProcessesUtilizationInfo(device, &info),
		    NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	CHECK_EQUAL(nvmlDeviceGetProcessesUtilizationInfo(device, NULL),
		    NVML_ERROR_INVALID_ARGUMENT);
	disperse();
}

/* -- accounting and names ------------------------------------------------------------------------
 */

TEST(accounting)
{
	nvmlDevice_t device = crowd_in_slice();
	unsigned count = 0, pids[4] = {0};
	nvmlAccountingStats_t stats = {.startTime = UNTOUCHED};

	CHECK_EQUAL(nvmlDeviceGetAccountingPids(device, &count, NULL),
		    NVML_ERROR_INSUFFICIENT_SIZE);
	CHECK_EQUAL(count, 2);
	CHECK_OK(nvmlDeviceGetAccountingPids(device, &count, pids));
	CHECK(count == 2 && is_ours(pids[0]) && is_ours(pids[1]) && pids[0] != pids[1]);
	CHECK_EQUAL(nvmlDeviceGetAccountingPids(device, NULL, pids), NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQUAL(nvmlDeviceGetAccountingStats(device, (unsigned)stranger.pid, &stats),
		    NVML_ERROR_NOT_FOUND);
	CHECK_EQUAL(nvmlDeviceGetAccountingStats(device, 0, &stats), NVML_ERROR_NOT_FOUND);
	CHECK_EQUAL(stats.startTime, UNTOUCHED);
	for (unsigned i = 0; i < 2; i++) {
		CHECK_OK(nvmlDeviceGetAccountingStats(device, (unsigned)members[i].pid, &stats));
		CHECK_EQUAL(stats.maxMemoryUsage, CONTEXT + sizes_mib[i] * MIB);
		CHECK_EQUAL(stats.isRunning, 1);
	}
	CHECK_EQUAL(nvmlDeviceGetAccountingStats(device, pids[0], NULL),
		    NVML_ERROR_INVALID_ARGUMENT);
	disperse();
}

TEST(names)
{
	char name[256] = "";

	crowd_in_slice();
	CHECK_EQUAL(nvmlSystemGetProcessName((unsigned)stranger.pid, name, sizeof(name)),
		    NVML_ERROR_NOT_FOUND);
	CHECK_EQUAL(nvmlSystemGetProcessName(1, name, sizeof(name)), NVML_ERROR_NOT_FOUND);
	CHECK(!name[0]);
	CHECK_OK(nvmlSystemGetProcessName((unsigned)members[0].pid, name, sizeof(name)));
	CHECK(strstr(name, "nvml_figures"));
	CHECK_EQUAL(nvmlSystemGetProcessName((unsigned)members[0].pid, name, 0),
		    NVML_ERROR_INVALID_ARGUMENT);
	CHECK_EQUAL(nvmlSystemGetProcessName((unsigned)members[0].pid, NULL, 9),
		    NVML_ERROR_INVALID_ARGUMENT);
	disperse();
}

/* Figures of others are given to who has no slice. */
TEST(no_slice_to_ask)
{
	nvmlDevice_t device = crowd();
	unsigned count = 4, pids[4];
	nvmlProcessUtilizationSample_t seen[4];
	nvmlProcessUtilizationInfo_v1_t infos[4];
	nvmlProcessesUtilizationInfo_t info = {.version = NVML_PROCESSES_UTILIZATION_V1,
					       .processSamplesCount = 4,
					       .procUtilArray = infos};
	nvmlAccountingStats_t stats;
	char name[256];

	CHECK_OK(nvmlDeviceGetAccountingPids(device, &count, pids));
	CHECK_EQUAL(count, 3);
	count = 4;
	CHECK_OK(nvmlDeviceGetProcessUtilization(device, seen, &count, 0));
	CHECK_EQUAL(count, 3);
	CHECK_OK(nvmlDeviceGetProcessesUtilizationInfo(device, &info));
	CHECK_EQUAL(info.processSamplesCount, 3);
	CHECK_OK(nvmlDeviceGetAccountingStats(device, (unsigned)stranger.pid, &stats));
	CHECK_OK(nvmlSystemGetProcessName((unsigned)stranger.pid, name, sizeof(name)));
	disperse();
}
