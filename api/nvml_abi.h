/*
 * The part of NVML's ABI that we use, as cuda_abi.h has the driver's. Checked by tests/abi/ against
 * nvml.h where there is one. Not to be included together with nvml.h.
 */
#pragma once

#include <stdint.h>

typedef enum nvmlReturn_enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NO_PERMISSION = 4,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_TIMEOUT = 10,
	NVML_ERROR_LIBRARY_NOT_FOUND = 12,
	NVML_ERROR_FUNCTION_NOT_FOUND = 13,
	NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
	NVML_ERROR_MEMORY = 20,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

typedef struct nvmlDevice_st *nvmlDevice_t;

typedef struct nvmlMemory_st {
	unsigned long long total, free, used; /* bytes; used includes what is reserved */
} nvmlMemory_t;

typedef struct nvmlMemory_v2_st {
	unsigned int version;                           /* NVML_MEMORY_V2, set by the caller */
	unsigned long long total, reserved, free, used; /* bytes */
} nvmlMemory_v2_t;

#define NVML_MEMORY_V2 ((unsigned int)sizeof(nvmlMemory_v2_t) | 2u << 24)

/* What the lists of running processes are filled with. v2 and v3 of the calls share a layout. */
typedef struct nvmlProcessInfo_v1_st {
	unsigned int pid;
	unsigned long long usedGpuMemory; /* bytes, or NVML_VALUE_NOT_AVAILABLE */
} nvmlProcessInfo_v1_t;

typedef struct nvmlProcessInfo_v2_st {
	unsigned int pid;
	unsigned long long usedGpuMemory;
	unsigned int gpuInstanceId, computeInstanceId; /* UINT32_MAX without MIG */
} nvmlProcessInfo_v2_t, nvmlProcessInfo_t;

#define NVML_VALUE_NOT_AVAILABLE        UINT64_MAX
#define NVML_DEVICE_UUID_V2_BUFFER_SIZE 96

typedef struct nvmlBAR1Memory_st {
	unsigned long long bar1Total, bar1Free, bar1Used; /* bytes */
} nvmlBAR1Memory_t;

/* A GPU's UUID, as text ("GPU-…") or as its sixteen bytes. */
typedef enum nvmlUUIDType_enum {
	NVML_UUID_TYPE_NONE = 0,
	NVML_UUID_TYPE_ASCII = 1,
	NVML_UUID_TYPE_BINARY = 2,
} nvmlUUIDType_t;

typedef union nvmlUUIDValue_un {
	char str[41];
	unsigned char bytes[16];
} nvmlUUIDValue_t;

typedef struct nvmlUUID_v1_st {
	unsigned int version; /* NVML_UUID_V1, set by the caller */
	unsigned int type;    /* nvmlUUIDType_t */
	nvmlUUIDValue_t value;
} nvmlUUID_v1_t, nvmlUUID_t;

#define NVML_UUID_V1 ((unsigned int)sizeof(nvmlUUID_v1_t) | 1u << 24)

typedef struct nvmlPciInfo_st {
	char busIdLegacy[16]; /* "0000:01:00.0" */
	unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[32]; /* "00000000:01:00.0" */
} nvmlPciInfo_t;

/* How near two GPUs are: each level includes those above it here. */
typedef enum nvmlGpuLevel_enum {
	NVML_TOPOLOGY_INTERNAL = 0,
	NVML_TOPOLOGY_SINGLE = 10,
	NVML_TOPOLOGY_MULTIPLE = 20,
	NVML_TOPOLOGY_HOSTBRIDGE = 30,
	NVML_TOPOLOGY_NODE = 40,
	NVML_TOPOLOGY_SYSTEM = 50,
} nvmlGpuTopologyLevel_t;

typedef enum nvmlEnableState_enum {
	NVML_FEATURE_DISABLED = 0,
	NVML_FEATURE_ENABLED = 1,
} nvmlEnableState_t;

/* Which processes may have contexts on a GPU. */
typedef enum nvmlComputeMode_enum {
	NVML_COMPUTEMODE_DEFAULT = 0,
	NVML_COMPUTEMODE_EXCLUSIVE_THREAD = 1,
	NVML_COMPUTEMODE_PROHIBITED = 2,
	NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3,
} nvmlComputeMode_t;

#define NVML_DEVICE_MIG_DISABLE 0
#define NVML_DEVICE_MIG_ENABLE  1

#define NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE 80

typedef struct nvmlProcessDetail_v1_st {
	unsigned int pid;
	unsigned long long usedGpuMemory;              /* as in nvmlProcessInfo_t */
	unsigned int gpuInstanceId, computeInstanceId; /* likewise */
	unsigned long long usedGpuCcProtectedMemory;   /* bytes */
} nvmlProcessDetail_v1_t;

typedef struct nvmlProcessDetailList_v1_st {
	unsigned int version;             /* NVML_PROCESS_DETAIL_LIST_V1, set by the caller */
	unsigned int mode;                /* 0 compute, 1 graphics, 2 MPS compute */
	unsigned int numProcArrayEntries; /* room, then how many */
	nvmlProcessDetail_v1_t *procArray;
} nvmlProcessDetailList_v1_t, nvmlProcessDetailList_t;

#define NVML_PROCESS_DETAIL_LIST_V1 ((unsigned int)sizeof(nvmlProcessDetailList_v1_t) | 1u << 24)

typedef struct nvmlUtilization_st {
	unsigned int gpu, memory; /* percent of the last sample period */
} nvmlUtilization_t;

typedef struct nvmlProcessUtilizationSample_st {
	unsigned int pid;
	unsigned long long timeStamp;                   /* us */
	unsigned int smUtil, memUtil, encUtil, decUtil; /* percent */
} nvmlProcessUtilizationSample_t;

typedef struct nvmlProcessUtilizationInfo_v1_st {
	unsigned long long timeStamp; /* us */
	unsigned int pid;
	unsigned int smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil; /* percent */
} nvmlProcessUtilizationInfo_v1_t;

typedef struct nvmlProcessesUtilizationInfo_v1_st {
	unsigned int version;                 /* NVML_PROCESSES_UTILIZATION_V1, set by the caller */
	unsigned int processSamplesCount;     /* room, then how many */
	unsigned long long lastSeenTimeStamp; /* us; only later samples are wanted */
	nvmlProcessUtilizationInfo_v1_t *procUtilArray;
} nvmlProcessesUtilizationInfo_v1_t, nvmlProcessesUtilizationInfo_t;

#define NVML_PROCESSES_UTILIZATION_V1 \
	((unsigned int)sizeof(nvmlProcessesUtilizationInfo_v1_t) | 1u << 24)

typedef struct nvmlAccountingStats_st {
	unsigned int gpuUtilization, memoryUtilization; /* percent */
	unsigned long long maxMemoryUsage;              /* bytes */
	unsigned long long time, startTime;             /* ms, 0 while it runs; us */
	unsigned int isRunning;
	unsigned int reserved[5];
} nvmlAccountingStats_t;

typedef struct nvmlEventSet_st *nvmlEventSet_t;

typedef struct nvmlEventData_st {
	nvmlDevice_t device;
	unsigned long long eventType;
	unsigned long long eventData;                  /* the number of the XID */
	unsigned int gpuInstanceId, computeInstanceId; /* UINT_MAX: of the whole GPU */
} nvmlEventData_t;

#define nvmlEventTypeXidCriticalError 0x8ULL
