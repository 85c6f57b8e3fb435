/*
 * The part of the CUDA runtime's ABI that the simulated runtime uses, in our own words, so that it
 * builds without a toolkit. A structure that the runtime hands to the driver unread is left
 * incomplete here: the toolkit gives it the driver's layout. tests/abi/ compares the sizes, values
 * and prototypes with a toolkit's header. Not to be included together with cuda_runtime_api.h.
 */
#pragma once

#include "cuda_abi.h"

typedef enum cudaError {
#define RT_ERROR(name, value, text) name = value,
#include "errors.def"
#undef RT_ERROR
} cudaError_t;

/* Enumerations whose values the driver shares: only their size matters. */
enum cudaLimit { RT_LIMIT_NONE };
enum cudaSharedMemConfig { RT_SHARED_MEM_CONFIG_NONE };
enum cudaFuncCache { RT_FUNC_CACHE_NONE };
enum cudaFuncAttribute { RT_FUNC_ATTRIBUTE_NONE };
enum cudaDeviceAttr { RT_DEVICE_ATTR_NONE };
enum cudaDeviceP2PAttr { RT_DEVICE_P2P_ATTR_NONE };
enum cudaStreamCaptureMode { RT_STREAM_CAPTURE_MODE_NONE };
enum cudaStreamCaptureStatus { RT_STREAM_CAPTURE_STATUS_NONE };
enum cudaMemoryAdvise { RT_MEMORY_ADVISE_NONE };
enum cudaMemRangeAttribute { RT_MEM_RANGE_ATTRIBUTE_NONE };
enum cudaMemPoolAttr { RT_MEM_POOL_ATTR_NONE };
enum cudaMemAccessFlags { RT_MEM_ACCESS_FLAGS_NONE };
enum cudaMemAllocationType { RT_MEM_ALLOCATION_TYPE_NONE };
enum cudaMemAllocationHandleType { RT_MEM_ALLOCATION_HANDLE_TYPE_NONE };
enum cudaGraphMemAttributeType { RT_GRAPH_MEM_ATTRIBUTE_TYPE_NONE };
enum cudaGraphNodeType { RT_GRAPH_NODE_TYPE_NONE };
enum cudaDriverEntryPointQueryResult { RT_DRIVER_ENTRY_POINT_NONE };
enum cudaJitOption { RT_JIT_OPTION_NONE };
enum cudaLibraryOption { RT_LIBRARY_OPTION_NONE };
enum cudaMemLocationType { RT_MEM_LOCATION_TYPE_NONE };

enum cudaMemcpyKind {
	cudaMemcpyHostToHost = 0,
	cudaMemcpyHostToDevice = 1,
	cudaMemcpyDeviceToHost = 2,
	cudaMemcpyDeviceToDevice = 3,
	cudaMemcpyDefault = 4,
};

enum cudaMemoryType {
	cudaMemoryTypeUnregistered = 0,
	cudaMemoryTypeHost = 1,
	cudaMemoryTypeDevice = 2,
	cudaMemoryTypeManaged = 3,
};

enum cudaChannelFormatKind {
	cudaChannelFormatKindSigned = 0,
	cudaChannelFormatKindUnsigned = 1,
	cudaChannelFormatKindFloat = 2,
	cudaChannelFormatKindNone = 3,
};

enum cudaResourceType {
	cudaResourceTypeArray = 0,
	cudaResourceTypeMipmappedArray = 1,
	cudaResourceTypeLinear = 2,
	cudaResourceTypePitch2D = 3,
};

typedef CUstream cudaStream_t;
typedef CUevent cudaEvent_t;
typedef CUgraph cudaGraph_t;
typedef CUgraphNode cudaGraphNode_t;
typedef CUgraphExec cudaGraphExec_t;
typedef CUmemoryPool cudaMemPool_t;
typedef CUkernel cudaKernel_t;
typedef CUlibrary cudaLibrary_t;
typedef CUfunction cudaFunction_t;
typedef CUexternalMemory cudaExternalMemory_t;
typedef CUhostFn cudaHostFn_t;
typedef unsigned long long cudaTextureObject_t;
typedef unsigned long long cudaSurfaceObject_t;
typedef struct cudaArray *cudaArray_t;
typedef const struct cudaArray *cudaArray_const_t;
typedef struct cudaMipmappedArray *cudaMipmappedArray_t;
typedef const struct cudaMipmappedArray *cudaMipmappedArray_const_t;
typedef void (*cudaStreamCallback_t)(cudaStream_t stream, cudaError_t status, void *userData);

typedef struct dim3 {
	unsigned int x, y, z;
} dim3;

typedef struct cudaIpcMemHandle_st {
	char reserved[64];
} cudaIpcMemHandle_t;

struct cudaMemLocation {
	enum cudaMemLocationType type;
	int id;
};

struct cudaExtent {
	size_t width, height, depth; /* width: bytes, or elements where an array takes part */
};

struct cudaPos {
	size_t x, y, z;
};

struct cudaPitchedPtr {
	void *ptr;
	size_t pitch; /* bytes from one row to the next */
	size_t xsize, ysize;
};

struct cudaChannelFormatDesc {
	int x, y, z, w; /* bits of each channel */
	enum cudaChannelFormatKind f;
};

struct cudaMemcpy3DParms {
	cudaArray_t srcArray;
	struct cudaPos srcPos;
	struct cudaPitchedPtr srcPtr;
	cudaArray_t dstArray;
	struct cudaPos dstPos;
	struct cudaPitchedPtr dstPtr;
	struct cudaExtent extent;
	enum cudaMemcpyKind kind;
};

struct cudaMemcpy3DPeerParms {
	cudaArray_t srcArray;
	struct cudaPos srcPos;
	struct cudaPitchedPtr srcPtr;
	int srcDevice;
	cudaArray_t dstArray;
	struct cudaPos dstPos;
	struct cudaPitchedPtr dstPtr;
	int dstDevice;
	struct cudaExtent extent;
};

struct cudaPointerAttributes {
	enum cudaMemoryType type;
	int device;
	void *devicePointer, *hostPointer;
	long reserved[8];
};

struct cudaFuncAttributes {
	size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
	int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA;
	int maxDynamicSharedSizeBytes, preferredShmemCarveout, clusterDimMustBeSet;
	int requiredClusterWidth, requiredClusterHeight, requiredClusterDepth;
	int clusterSchedulingPolicyPreference, nonPortableClusterSizeAllowed;
	int reserved[16];
};

typedef struct cudaLaunchAttribute_st cudaLaunchAttribute; /* the driver's layout */

typedef struct cudaLaunchConfig_st {
	dim3 gridDim, blockDim;
	size_t dynamicSmemBytes;
	cudaStream_t stream;
	cudaLaunchAttribute *attrs;
	unsigned int numAttrs;
} cudaLaunchConfig_t;

struct cudaKernelNodeParams {
	void *func;
	dim3 gridDim, blockDim;
	unsigned int sharedMemBytes;
	void **kernelParams, **extra;
};

struct cudaResourceDesc {
	enum cudaResourceType resType;
	union {
		void *object; /* an array or a mipmapped array */
		struct {
			void *devPtr;
			struct cudaChannelFormatDesc desc;
			size_t sizes[3]; /* bytes; or width, height and pitch of Pitch2D */
		} memory;
		int reserved[32];
	} res;
	unsigned int flags;
};

struct cudaTextureDesc {
	unsigned int addressMode[3], filterMode, readMode;
	int sRGB;
	float borderColor[4];
	int normalizedCoords;
	unsigned int maxAnisotropy, mipmapFilterMode;
	float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp;
	int disableTrilinearOptimization, seamlessCubemap;
};

struct cudaDeviceProp {
	char name[256];
	CUuuid uuid;
	char luid[8];
	unsigned int luidDeviceNodeMask;
	size_t totalGlobalMem, sharedMemPerBlock;
	int regsPerBlock, warpSize;
	size_t memPitch;
	int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
	size_t totalConstMem;
	int major, minor;
	size_t textureAlignment, texturePitchAlignment;
	int multiProcessorCount, integrated, canMapHostMemory;
	int maxTexture1D, maxTexture1DMipmap, maxTexture2D[2], maxTexture2DMipmap[2];
	int maxTexture2DLinear[3], maxTexture2DGather[2], maxTexture3D[3], maxTexture3DAlt[3];
	int maxTextureCubemap, maxTexture1DLayered[2], maxTexture2DLayered[3];
	int maxTextureCubemapLayered[2], maxSurface1D, maxSurface2D[2], maxSurface3D[3];
	int maxSurface1DLayered[2], maxSurface2DLayered[3], maxSurfaceCubemap;
	int maxSurfaceCubemapLayered[2];
	size_t surfaceAlignment;
	int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver;
	int asyncEngineCount, unifiedAddressing, memoryBusWidth, l2CacheSize;
	int persistingL2CacheMaxSize, maxThreadsPerMultiProcessor, streamPrioritiesSupported;
	int globalL1CacheSupported, localL1CacheSupported;
	size_t sharedMemPerMultiprocessor;
	int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID;
	int hostNativeAtomicSupported, pageableMemoryAccess, concurrentManagedAccess;
	int computePreemptionSupported, canUseHostPointerForRegisteredMem, cooperativeLaunch;
	size_t sharedMemPerBlockOptin;
	int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost;
	int maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
	size_t reservedSharedMemPerBlock;
	int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported;
	int timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;
	unsigned int gpuDirectRDMAFlushWritesOptions;
	int gpuDirectRDMAWritesOrdering;
	unsigned int memoryPoolSupportedHandleTypes;
	int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch;
	int unifiedFunctionPointers, deviceNumaConfig, deviceNumaId, mpsEnabled, hostNumaId;
	unsigned int gpuPciDeviceID, gpuPciSubsystemID;
	int hostNumaMultinodeIpcSupported, reserved[56];
};

/* Handed to the driver unread. */
struct cudaExternalMemoryHandleDesc;
struct cudaExternalMemoryBufferDesc;
struct cudaMemPoolProps;
struct cudaMemAccessDesc;
struct cudaMemPoolPtrExportData;
struct cudaArrayMemoryRequirements;
struct cudaResourceViewDesc;
struct cudaMemsetParams;
struct cudaMemAllocNodeParams;
typedef struct cudaGraphEdgeData_st cudaGraphEdgeData;
typedef struct cudaGraphInstantiateParams_st cudaGraphInstantiateParams;
typedef struct cudaGraphExecUpdateResultInfo_st cudaGraphExecUpdateResultInfo;
