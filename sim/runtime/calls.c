/*
 * The exported functions, made from the rows of runtime.def; and a stub for each other name, which
 * answers cudaErrorNotSupported whatever its parameters are.
 */
#include "runtime.h"

#define S(stream) ((stream) ? (stream) : null_stream)

#define BODY(name, parameters, begin, null, call)           \
	RT_EXPORT cudaError_t name parameters               \
	{                                                   \
		const CUstream null_stream = (null);        \
		int error = begin();                        \
                                                            \
		(void)null_stream;                          \
		return rt_end(error ? error : (int)(call)); \
	}

#define RT_CALL(name, parameters, call) BODY(name, parameters, rt_begin, NULL, call)
#define RT_INIT(name, parameters, call) BODY(name, parameters, rt_start, NULL, call)
#define RT_PTSZ(name, parameters, call)              \
	BODY(name, parameters, rt_begin, NULL, call) \
	BODY(name##_ptsz, parameters, rt_begin, RT_PER_THREAD, call)
#define RT_PTDS(name, parameters, call)              \
	BODY(name, parameters, rt_begin, NULL, call) \
	BODY(name##_ptds, parameters, rt_begin, RT_PER_THREAD, call)
#include "runtime.def"

#define RT_STUB(name)                                 \
	RT_EXPORT cudaError_t name(void);             \
	cudaError_t name(void)                        \
	{                                             \
		return rt_end(cudaErrorNotSupported); \
	}
#include "runtime_stubs.def"
