/*
 * The map of the simulated libcuda: which file does what, and the functions by which its files call
 * each other. The declarations of a subject are in a header of its own, which this one includes.
 *
 * sim.h
 *     driver.c          cuInit, fork, the checks with which every exported function begins
 *     device.c          which GPUs this process sees, and what they are like
 *     procaddress.c     the index of everything exported;  stub.c: functions that do nothing
 *     error.c           names of errors;  sim_assert.h: assertions about the machine's state
 *     config.c          the environment;  faults.c: calls that a test lets fail
 *     machine_slots.c   the machine that all processes share: what each holds
 *     machine_objects.c objects of several processes;  machine_collective.c: collectives
 *     machine_file.c    the file of the machine and its locks;  machine_pages.c: managed pages
 *     pids.c            pids of other processes, by pid namespace
 *
 * sim_context.h
 *     context.c         contexts, primary ones, each thread's stack (context_calls.c: their API)
 *     green.c           green contexts
 *     module.c          code and its variables;  library.c: code without a context
 *     kernel.c          kernels
 *     image.c           reads code images (image.h; image_elf.c, image_ptx.c, image_unpack.c)
 *
 * sim_memory.h
 *     memory.c          allocations and their cost (memory_calls.c: their API);  page.c: granules
 *     memory_host.c     page-locked host memory, and what a pointer points to
 *     advice.c          where managed memory should be;  peer.c: memory of other GPUs
 *     address_map.c     addresses of device memory that memory.c does not know
 *     pool.c            stream-ordered memory (pool_calls.c: its API);  pool_list.c: the pools
 *     pool_share.c      pools of other processes
 *     graph_memory.c    allocations of graphs
 *
 * sim_object.h
 *     handle.c          which handles there are
 *     virtual.c         memory by handle;  virtual_map.c: its mappings;  multicast.c
 *     share.c           memory of other processes;  external.c: memory of other libraries
 *     array.c           arrays (array_calls.c: their API);  array_size.c: their sizes
 *     texture.c         textures and surfaces
 *
 * sim_stream.h
 *     timeline.c        when queued work is done (timeline_calls.c and launch_calls.c: the API)
 *     stream_calls.c    more of the API of streams
 *     backlog.c         work that waits for something to happen, by stream;  backlog_task.c: when
 *                       a piece of it ends;  backlog_thread.c: its threads
 *     transfer.c        copies and fills (transfer_calls.c: their API)
 *     capture.c         streams that record (capture_calls.c: their API)
 *
 * graph.h
 *     graph.c           graphs (graph_calls.c, graph_nodes.c: their API);  graph_exec.c: launches
 *
 * Locks, to be taken in this order: contexts (context.c), objects (timeline.c), graphs (graph.c),
 * pools (pool.c), backlog (backlog.c), arrays (array.c), virtual (virtual.c), memory (memory.c),
 * the shared state's (machine_file.c). The locks of address_map.c and handle.c are taken inside
 * any of them. A context is never freed, so a stale handle is always safe to look at.
 *
 * Every exported function is declared here from cuda.def: one defined otherwise does not compile,
 * and a row without a definition does not link, because procaddress.c refers to all of them.
 */
#pragma once

#include "cuda_abi.h"

#include "config.h"
#include "faults.h"
#include "machine.h"
#include "sim_assert.h"
#include "sim_context.h"
#include "sim_memory.h"
#include "sim_object.h"
#include "sim_stream.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#define CU_HOOK(name, class, parameters, arguments) CUresult name parameters;
#define CU_CALL(name, class, parameters)            CUresult name parameters;
#define CU_SIM(name, class, parameters)             CUresult name parameters;
#include "cuda.def"
#pragma GCC visibility pop

/* ---- driver.c */

/* Every exported function first calls one of these, with __func__. An error is the function's
 * answer: a scripted fault (faults.h), or a precondition that does not hold. */
CUresult enter(const char *function);                                 /* after cuInit */
CUresult enter_early(const char *function);                           /* at any time */
CUresult enter_context(const char *function, CUcontext *ret_context); /* with a current context */
/* Functions in which a test may want to wait (VGPU_SIM_PARK) call this last. Returns the result. */
CUresult leave(const char *function, CUresult result);

/* ---- device.c */

/* Reads CUDA_VISIBLE_DEVICES, to find out which of the machine's GPUs this process sees. If it sees
 * none, returns the error for cuInit. */
CUresult device_discover(const struct sim_config *config);
unsigned device_count(void);
/* The machine's number of the GPU that this process calls `device`; false if there is none. */
bool device_gpu(CUdevice device, unsigned *ret_gpu);
