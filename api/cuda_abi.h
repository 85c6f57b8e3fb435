/*
 * The part of the CUDA driver's ABI that we use, in our own words: enough to build with no CUDA
 * toolkit at hand, and against none in particular. Exported names carry their version and never
 * change their ABI, so what is written here once stays true. tests/abi/ compares every size and
 * value with a toolkit's cuda.h where there is one. Not to be included together with cuda.h.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef enum cudaError_enum {
#define CU_RESULT(name, value) name = value,
#include "cuda_values.def"
} CUresult;

enum cuda_value {
#define CU_VALUE(name, value) name = value,
#include "cuda_values.def"
};

typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned int CUdeviceptr_v1; /* of the functions of CUDA 3.1 and older, which have no _v2 */

typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;

/* Enumerations whose members we use through CU_VALUE, or not at all. */
typedef unsigned int CUdevice_attribute;
typedef unsigned int CUpointer_attribute;
typedef unsigned int CUfunction_attribute;
typedef unsigned int CUjit_option;
typedef unsigned int CUlimit;
typedef unsigned int CUdriverProcAddressQueryResult; /* CU_GET_PROC_ADDRESS_SUCCESS … */

typedef struct CUuuid_st {
	char bytes[16];
} CUuuid;

/* Passed through unread. */
typedef struct CUexecAffinityParam_st CUexecAffinityParam;
typedef struct CUctxCreateParams_st CUctxCreateParams;
