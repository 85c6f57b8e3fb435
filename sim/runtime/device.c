/* cudaGetDeviceProperties: the driver's device attributes, by the runtime's names for them. */
#include "runtime.h"

#include <string.h>

/*
 * SIZE(field, attribute), NUMBER(…) and BITS(…) are fields of type size_t, int and unsigned. The
 * attribute is the value of cudaDeviceAttr, which is the driver's too.
 */
#define PROPERTIES(SIZE, NUMBER, BITS)                      \
	SIZE(sharedMemPerBlock, 8)                          \
	NUMBER(regsPerBlock, 12)                            \
	NUMBER(warpSize, 10)                                \
	SIZE(memPitch, 11)                                  \
	NUMBER(maxThreadsPerBlock, 1)                       \
	NUMBER(maxThreadsDim[0], 2)                         \
	NUMBER(maxThreadsDim[1], 3)                         \
	NUMBER(maxThreadsDim[2], 4)                         \
	NUMBER(maxGridSize[0], 5)                           \
	NUMBER(maxGridSize[1], 6)                           \
	NUMBER(maxGridSize[2], 7)                           \
	SIZE(totalConstMem, 9)                              \
	NUMBER(major, 75)                                   \
	NUMBER(minor, 76)                                   \
	SIZE(textureAlignment, 14)                          \
	SIZE(texturePitchAlignment, 51)                     \
	NUMBER(multiProcessorCount, 16)                     \
	NUMBER(integrated, 18)                              \
	NUMBER(canMapHostMemory, 19)                        \
	NUMBER(maxTexture1D, 21)                            \
	NUMBER(maxTexture1DMipmap, 77)                      \
	NUMBER(maxTexture2D[0], 22)                         \
	NUMBER(maxTexture2D[1], 23)                         \
	NUMBER(maxTexture2DMipmap[0], 73)                   \
	NUMBER(maxTexture2DMipmap[1], 74)                   \
	NUMBER(maxTexture2DLinear[0], 70)                   \
	NUMBER(maxTexture2DLinear[1], 71)                   \
	NUMBER(maxTexture2DLinear[2], 72)                   \
	NUMBER(maxTexture2DGather[0], 45)                   \
	NUMBER(maxTexture2DGather[1], 46)                   \
	NUMBER(maxTexture3D[0], 24)                         \
	NUMBER(maxTexture3D[1], 25)                         \
	NUMBER(maxTexture3D[2], 26)                         \
	NUMBER(maxTexture3DAlt[0], 47)                      \
	NUMBER(maxTexture3DAlt[1], 48)                      \
	NUMBER(maxTexture3DAlt[2], 49)                      \
	NUMBER(maxTextureCubemap, 52)                       \
	NUMBER(maxTexture1DLayered[0], 42)                  \
	NUMBER(maxTexture1DLayered[1], 43)                  \
	NUMBER(maxTexture2DLayered[0], 27)                  \
	NUMBER(maxTexture2DLayered[1], 28)                  \
	NUMBER(maxTexture2DLayered[2], 29)                  \
	NUMBER(maxTextureCubemapLayered[0], 53)             \
	NUMBER(maxTextureCubemapLayered[1], 54)             \
	NUMBER(maxSurface1D, 55)                            \
	NUMBER(maxSurface2D[0], 56)                         \
	NUMBER(maxSurface2D[1], 57)                         \
	NUMBER(maxSurface3D[0], 58)                         \
	NUMBER(maxSurface3D[1], 59)                         \
	NUMBER(maxSurface3D[2], 60)                         \
	NUMBER(maxSurface1DLayered[0], 61)                  \
	NUMBER(maxSurface1DLayered[1], 62)                  \
	NUMBER(maxSurface2DLayered[0], 63)                  \
	NUMBER(maxSurface2DLayered[1], 64)                  \
	NUMBER(maxSurface2DLayered[2], 65)                  \
	NUMBER(maxSurfaceCubemap, 66)                       \
	NUMBER(maxSurfaceCubemapLayered[0], 67)             \
	NUMBER(maxSurfaceCubemapLayered[1], 68)             \
	SIZE(surfaceAlignment, 30)                          \
	NUMBER(concurrentKernels, 31)                       \
	NUMBER(ECCEnabled, 32)                              \
	NUMBER(pciBusID, 33)                                \
	NUMBER(pciDeviceID, 34)                             \
	NUMBER(pciDomainID, 50)                             \
	NUMBER(tccDriver, 35)                               \
	NUMBER(asyncEngineCount, 40)                        \
	NUMBER(unifiedAddressing, 41)                       \
	NUMBER(memoryBusWidth, 37)                          \
	NUMBER(l2CacheSize, 38)                             \
	NUMBER(persistingL2CacheMaxSize, 108)               \
	NUMBER(maxThreadsPerMultiProcessor, 39)             \
	NUMBER(streamPrioritiesSupported, 78)               \
	NUMBER(globalL1CacheSupported, 79)                  \
	NUMBER(localL1CacheSupported, 80)                   \
	SIZE(sharedMemPerMultiprocessor, 81)                \
	NUMBER(regsPerMultiprocessor, 82)                   \
	NUMBER(managedMemory, 83)                           \
	NUMBER(isMultiGpuBoard, 84)                         \
	NUMBER(multiGpuBoardGroupID, 85)                    \
	NUMBER(hostNativeAtomicSupported, 86)               \
	NUMBER(pageableMemoryAccess, 88)                    \
	NUMBER(concurrentManagedAccess, 89)                 \
	NUMBER(computePreemptionSupported, 90)              \
	NUMBER(canUseHostPointerForRegisteredMem, 91)       \
	NUMBER(cooperativeLaunch, 95)                       \
	SIZE(sharedMemPerBlockOptin, 97)                    \
	NUMBER(pageableMemoryAccessUsesHostPageTables, 100) \
	NUMBER(directManagedMemAccessFromHost, 101)         \
	NUMBER(maxBlocksPerMultiProcessor, 106)             \
	NUMBER(accessPolicyMaxWindowSize, 109)              \
	SIZE(reservedSharedMemPerBlock, 111)                \
	NUMBER(hostRegisterSupported, 99)                   \
	NUMBER(sparseCudaArraySupported, 112)               \
	NUMBER(hostRegisterReadOnlySupported, 113)          \
	NUMBER(timelineSemaphoreInteropSupported, 114)      \
	NUMBER(memoryPoolsSupported, 115)                   \
	NUMBER(gpuDirectRDMASupported, 116)                 \
	BITS(gpuDirectRDMAFlushWritesOptions, 117)          \
	NUMBER(gpuDirectRDMAWritesOrdering, 118)            \
	BITS(memoryPoolSupportedHandleTypes, 119)           \
	NUMBER(deferredMappingCudaArraySupported, 121)      \
	NUMBER(ipcEventSupported, 125)                      \
	NUMBER(clusterLaunch, 120)                          \
	NUMBER(deviceNumaConfig, 130)                       \
	NUMBER(deviceNumaId, 131)                           \
	NUMBER(mpsEnabled, 133)                             \
	NUMBER(hostNumaId, 134)                             \
	BITS(gpuPciDeviceID, 139)                           \
	BITS(gpuPciSubsystemID, 140)                        \
	NUMBER(hostNumaMultinodeIpcSupported, 143)

/* An attribute that the driver does not know is 0. */
static int attribute(unsigned number, int device)
{
	int value = 0;

	return cu.cuDeviceGetAttribute(&value, number, device) ? 0 : value;
}

int rt_properties(struct cudaDeviceProp *ret_properties, int device)
{
	struct cudaDeviceProp found;
	int error = ret_properties ? cudaSuccess : cudaErrorInvalidValue;

	memset(&found, 0, sizeof found);
	if (!error)
		error = (int)cu.cuDeviceGetName(found.name, sizeof found.name, device);
	if (!error)
		error = (int)cu.cuDeviceGetUuid_v2(&found.uuid, device);
	if (!error)
		error = (int)cu.cuDeviceTotalMem_v2(&found.totalGlobalMem, device);
	if (error)
		return error;
#define SIZE(field, number)   found.field = (size_t)attribute(number, device);
#define NUMBER(field, number) found.field = attribute(number, device);
#define BITS(field, number)   found.field = (unsigned)attribute(number, device);
	PROPERTIES(SIZE, NUMBER, BITS)
	*ret_properties = found;
	return cudaSuccess;
}
