/*
 * More of the driver's functions about streams: waits for events, functions of the host, waits for
 * words of memory and writes of them, copies between devices, and attributes of streams.
 */
#include "sim.h"

enum {
	VALUE_CONDITIONS = 3, /* CU_STREAM_WAIT_VALUE_GEQ, _EQ, _AND, _NOR */
	VALUE_FLUSH = 1 << 30,
	VALUE_WRITE_FLAGS_KNOWN = 1, /* CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER */
};

#define TWICE(name, parameters, call, ...)                 \
	CUresult name parameters                           \
	{                                                  \
		return call(__func__, false, __VA_ARGS__); \
	}                                                  \
	CUresult name##_ptsz parameters                    \
	{                                                  \
		return call(__func__, true, __VA_ARGS__);  \
	}

static CUresult enter_stream(const char *function, bool per_thread, CUstream handle,
			     CUstream *ret_stream)
{
	CUcontext context;
	CUresult result = enter_context(function, &context);

	return result ? result : stream_resolve(context, handle, per_thread, ret_stream);
}

/* A stream cannot join another stream's capture here. */
static CUresult wait_event(const char *function, bool per_thread, CUstream handle, CUevent event,
			   unsigned flags)
{
	CUstream stream;
	bool capturing;
	CUresult result = enter_stream(function, per_thread, handle, &stream);

	if (result)
		return result;
	if (!event || atomic_load(&event->kind) != OBJECT_EVENT)
		return CUDA_ERROR_INVALID_HANDLE;
	if (flags > 1)
		return CUDA_ERROR_INVALID_VALUE;
	result = capture_enter(stream, &capturing);
	if (result)
		return result;
	if (capturing != atomic_load(&event->captured))
		return capturing ? CUDA_ERROR_STREAM_CAPTURE_ISOLATION : CUDA_ERROR_NOT_SUPPORTED;
	if (!capturing)
		stream_after(stream, &event->when);
	return CUDA_SUCCESS;
}

TWICE(cuStreamWaitEvent, (CUstream hStream, CUevent hEvent, unsigned int Flags), wait_event,
      hStream, hEvent, Flags)

void stream_call_make(const struct stream_call *call)
{
	if (call->function)
		call->function(call->data);
	else
		call->callback(call->handle, CUDA_SUCCESS, call->data);
}

static CUresult queue_call(const char *function, bool per_thread, bool good,
			   const struct stream_call *call)
{
	CUstream stream;
	CUresult result = enter_stream(function, per_thread, call->handle, &stream);

	if (!result && !good)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = capture_refuse(stream);
	return result ? result : backlog_call(stream, call);
}

static CUresult host_call(const char *function, bool per_thread, CUstream handle, CUhostFn call,
			  void *data)
{
	return queue_call(function, per_thread, call,
			  &(struct stream_call){.function = call, .handle = handle, .data = data});
}

TWICE(cuLaunchHostFunc, (CUstream hStream, CUhostFn fn, void *userData), host_call, hStream, fn,
      userData)

static CUresult callback_call(const char *function, bool per_thread, CUstream handle,
			      CUstreamCallback call, void *data, unsigned flags)
{
	return queue_call(function, per_thread, call && !flags,
			  &(struct stream_call){.callback = call, .handle = handle, .data = data});
}

TWICE(cuStreamAddCallback,
      (CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags),
      callback_call, hStream, callback, userData, flags)

static void value_write(const struct stream_value *value)
{
	void *word = (void *)(uintptr_t)value->address;

	if (value->wide)
		atomic_store((_Atomic uint64_t *)word, value->value);
	else
		atomic_store((_Atomic uint32_t *)word, (uint32_t)value->value);
}

bool stream_value_done(const struct stream_value *value)
{
	const void *word = (const void *)(uintptr_t)value->address;

	if (value->writes) {
		value_write(value);
		return true;
	}
	uint64_t seen = value->wide ? atomic_load((const _Atomic uint64_t *)word)
				    : atomic_load((const _Atomic uint32_t *)word);
	uint64_t more = seen - value->value;
	switch (value->flags & ~(unsigned)VALUE_FLUSH) {
	case 0:
		return value->wide ? (int64_t)more >= 0 : (int32_t)(uint32_t)more >= 0;
	case 1:
		return seen == value->value;
	case 2:
		return (seen & value->value) != 0;
	default:
		return value->wide ? ~(seen | value->value) != 0
				   : ~(uint32_t)(seen | value->value) != 0;
	}
}

static CUresult queue_value(const char *function, bool per_thread, CUstream handle,
			    const struct stream_value *value)
{
	unsigned flags = value->flags & ~(unsigned)(value->writes ? 0 : VALUE_FLUSH);
	CUstream stream;
	CUresult result = enter_stream(function, per_thread, handle, &stream);

	if (!result && (!value->address || value->address % (value->wide ? 8 : 4) ||
			flags > (value->writes ? VALUE_WRITE_FLAGS_KNOWN : VALUE_CONDITIONS)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = capture_refuse(stream);
	return result ? result : backlog_value(stream, value);
}

#define VALUE(name, type, is_wide, is_write)                                             \
	TWICE(name, (CUstream stream, CUdeviceptr addr, type value, unsigned int flags), \
	      queue_value, stream,                                                       \
	      &(struct stream_value){addr, value, flags, .wide = is_wide, .writes = is_write})

VALUE(cuStreamWaitValue32, cuuint32_t, false, false)
VALUE(cuStreamWaitValue32_v2, cuuint32_t, false, false)
VALUE(cuStreamWaitValue64, cuuint64_t, true, false)
VALUE(cuStreamWaitValue64_v2, cuuint64_t, true, false)
VALUE(cuStreamWriteValue32, cuuint32_t, false, true)
VALUE(cuStreamWriteValue32_v2, cuuint32_t, false, true)
VALUE(cuStreamWriteValue64, cuuint64_t, true, true)
VALUE(cuStreamWriteValue64_v2, cuuint64_t, true, true)

/* Attaching managed memory to a stream has no effect here. */
static CUresult attach(const char *function, bool per_thread, CUstream handle, uint64_t address,
		       size_t bytes, unsigned flags)
{
	struct memory_advice advice;
	CUstream stream;
	CUresult result = enter_stream(function, per_thread, handle, &stream);

	if (result)
		return result;
	if (!memory_advice_get(address, bytes ? bytes : 1, &advice) ||
	    (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
	     flags != CU_MEM_ATTACH_SINGLE))
		return CUDA_ERROR_INVALID_VALUE;
	return capture_refuse(stream);
}

TWICE(cuStreamAttachMemAsync,
      (CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags), attach, hStream,
      dptr, length, flags)

static CUresult get_flags(const char *function, bool per_thread, CUstream handle,
			  unsigned *ret_flags)
{
	CUstream stream;
	CUresult result = enter_stream(function, per_thread, handle, &stream);

	if (result)
		return result;
	if (!ret_flags)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_flags = stream->flags;
	return CUDA_SUCCESS;
}

TWICE(cuStreamGetFlags, (CUstream hStream, unsigned int *flags), get_flags, hStream, flags)

static CUresult get_priority(const char *function, bool per_thread, CUstream handle,
			     int *ret_priority)
{
	CUstream stream;
	CUresult result = enter_stream(function, per_thread, handle, &stream);

	if (result)
		return result;
	if (!ret_priority)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_priority = stream->priority;
	return CUDA_SUCCESS;
}

TWICE(cuStreamGetPriority, (CUstream hStream, int *priority), get_priority, hStream, priority)

/* The id is the stream's address, which no other living stream has. */
static CUresult get_id(const char *function, bool per_thread, CUstream handle,
		       unsigned long long *ret_id)
{
	CUstream stream;
	CUresult result = enter_stream(function, per_thread, handle, &stream);

	if (result)
		return result;
	if (!ret_id)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_id = (uintptr_t)stream;
	return CUDA_SUCCESS;
}

TWICE(cuStreamGetId, (CUstream hStream, unsigned long long *streamId), get_id, hStream, streamId)

static CUresult get_device(const char *function, bool per_thread, CUstream handle,
			   CUdevice *ret_device)
{
	CUstream stream;
	CUresult result = enter_stream(function, per_thread, handle, &stream);

	if (result)
		return result;
	if (!ret_device)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_device = stream->context->device;
	return CUDA_SUCCESS;
}

TWICE(cuStreamGetDevice, (CUstream hStream, CUdevice *device), get_device, hStream, device)

/* -- between devices: addresses are the same in all contexts -- */

static CUresult copy_peer(const char *function, CUstream stream, bool per_thread, uint64_t to,
			  CUcontext to_context, uint64_t from, CUcontext from_context, size_t bytes)
{
	struct graph_work work = {
		.type = CU_GRAPH_NODE_TYPE_MEMCPY,
		.target = {.address = to, .on_device = true},
		.source = {.address = from, .on_device = true},
		.bytes = bytes,
		.rows = 1,
		.slices = 1,
	};
	CUresult result = CUDA_SUCCESS;

	if ((to_context && !context_known(to_context)) ||
	    (from_context && !context_known(from_context)))
		result = CUDA_ERROR_INVALID_CONTEXT;
	if (result) {
		CUresult entered = enter(function);

		return entered ? entered : result;
	}
	return transfer_submit(function, stream, per_thread, &work);
}

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
		      CUcontext srcContext, size_t ByteCount)
{
	return copy_peer(__func__, NULL, false, dstDevice, dstContext, srcDevice, srcContext,
			 ByteCount);
}

CUresult cuMemcpyPeer_ptds(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
			   CUcontext srcContext, size_t ByteCount)
{
	return copy_peer(__func__, NULL, true, dstDevice, dstContext, srcDevice, srcContext,
			 ByteCount);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
			   CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
	return copy_peer(__func__, hStream, false, dstDevice, dstContext, srcDevice, srcContext,
			 ByteCount);
}

CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
				CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
	return copy_peer(__func__, hStream, true, dstDevice, dstContext, srcDevice, srcContext,
			 ByteCount);
}
