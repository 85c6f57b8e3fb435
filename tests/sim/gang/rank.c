/*
 * See rank.h.
 *
 * In a step a rank works, and meets all others in a collective; with several communicators it does
 * a part of the work before each, and the collectives are in streams of their own, behind that part
 * and before the next step, as a framework overlaps the reduction of gradients with the backward
 * pass. In a pipeline it receives from the rank before, works, and sends to the rank after.
 *
 * Whatever a rank has seen the end of, the others have begun to queue: that is checked at each end.
 */
#include "rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MIB ((size_t)1 << 20)

static const char ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry spin_ns(.param .u64 ns) { ret; }\n"
	".visible .entry collective(.param .u64 c, .param .u64 n, .param .u64 ns) { ret; }\n";

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void sleep_ns(uint64_t ns)
{
	struct timespec span = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

	while (nanosleep(&span, &span))
		;
}

static void use(const struct rank *rank)
{
	CHECK_OK(cuCtxSetCurrent(rank->context));
}

/* -- what the GPU is given -------------------------------------------------------------------- */

static void launch(CUfunction function, CUstream stream, void **parameters)
{
	CHECK_OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
}

static void work(const struct rank *rank, uint64_t ns)
{
	void *parameters[] = {&ns};

	if (ns)
		launch(rank->spin, rank->stream, parameters);
}

static void meet(const struct rank *rank, CUstream stream, uint64_t which, uint64_t ranks)
{
	uint64_t communicator = rank->common->communicator + which, ns = rank->job->collective_ns;
	void *parameters[] = {&communicator, &ranks, &ns};

	launch(rank->collective, stream, parameters);
}

/* All in one stream. */
static void step_in_line(const struct rank *rank)
{
	const struct job *job = rank->job;

	if (job->pipeline && rank->number > 0)
		meet(rank, rank->stream, rank->number - 1, 2);
	for (unsigned i = 0; i < job->comms; i++) {
		work(rank, job->work_ns / job->comms);
		if (!job->pipeline)
			meet(rank, rank->stream, i, job->ranks);
	}
	if (job->pipeline && rank->number + 1 < job->ranks)
		meet(rank, rank->stream, rank->number, 2);
}

static void step_overlapped(const struct rank *rank)
{
	const struct job *job = rank->job;

	for (unsigned i = 0; i < job->comms; i++) {
		CUstream stream = rank->comm_streams[i];

		work(rank, job->work_ns / job->comms);
		CHECK_OK(cuEventRecord(rank->worked, rank->stream));
		CHECK_OK(cuStreamWaitEvent(stream, rank->worked, 0));
		meet(rank, stream, i, job->ranks);
		CHECK_OK(cuEventRecord(rank->reduced[i], stream));
	}
	for (unsigned i = 0; i < job->comms; i++)
		CHECK_OK(cuStreamWaitEvent(rank->stream, rank->reduced[i], 0));
}

static void capture(struct rank *rank)
{
	CUgraph graph;

	CHECK_OK(cuStreamBeginCapture_v2(rank->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	step_in_line(rank);
	CHECK_OK(cuStreamEndCapture(rank->stream, &graph));
	CHECK_OK(cuGraphInstantiateWithFlags(&rank->graph, graph, 0));
}

/* -- before the first step -------------------------------------------------------------------- */

void rank_open(struct rank *rank, const struct job *job, struct common *common, unsigned number)
{
	CUmodule module;
	int devices;

	*rank = (struct rank){
		.job = job, .common = common, .number = number, .random = number * 7919 + 1};
	CHECK_OK(cuInit(0));
	CHECK_OK(cuDeviceGetCount(&devices));
	CHECK(devices > 0);
	/* A process may see its own device only. */
	CHECK_OK(cuDevicePrimaryCtxRetain(&rank->context, (CUdevice)number % devices));
	use(rank);
	CHECK_OK(cuModuleLoadData(&module, ptx));
	CHECK_OK(cuModuleGetFunction(&rank->spin, module, "spin_ns"));
	CHECK_OK(cuModuleGetFunction(&rank->collective, module, "collective"));
	CHECK_OK(cuStreamCreate(&rank->stream, 1));
	CHECK_OK(cuEventCreate(&rank->worked, 2));
	for (unsigned i = 0; i < job->comms; i++) {
		CHECK_OK(cuStreamCreate(&rank->comm_streams[i], 1));
		CHECK_OK(cuEventCreate(&rank->reduced[i], 2));
	}
	for (unsigned i = 0; i <= job->ahead; i++)
		CHECK_OK(cuEventCreate(&rank->steps[i], 2));
	if (job->graph)
		capture(rank);
}

/* Waits until all ranks have come here for the time-th time. */
static void all_here(struct common *common, unsigned ranks, unsigned own, unsigned time)
{
	__atomic_fetch_add(&common->ready, own, __ATOMIC_SEQ_CST);
	while (PEEK(common->ready) < ranks * time)
		sleep_ns(1000000);
}

static void sign_by_peers(struct rank *ranks, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		use(&ranks[i]);
		for (unsigned j = 0; j < count; j++) {
			if (i != j)
				CHECK_OK(cuCtxEnablePeerAccess(ranks[j].context, 0));
		}
	}
}

/* Memory of each device, mapped for all of them. */
static void sign_by_access(struct rank *ranks, unsigned count)
{
	CUmemAccessDesc access[RANKS_MAX];

	for (unsigned i = 0; i < count; i++)
		access[i] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, (int)ranks[i].number},
					      CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	for (unsigned i = 0; i < count; i++) {
		CUmemAllocationProp where = {
			.type = CU_MEM_ALLOCATION_TYPE_PINNED,
			.location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)ranks[i].number}};
		CUmemGenericAllocationHandle handle;
		CUdeviceptr address;

		CHECK_OK(cuMemCreate(&handle, 2 * MIB, &where, 0));
		CHECK_OK(cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0));
		CHECK_OK(cuMemMap(address, 2 * MIB, 0, handle, 0));
		CHECK_OK(cuMemSetAccess(address, 2 * MIB, access, count));
	}
}

/* Each opens the buffers of all others, whose processes keep them. */
static void sign_by_ipc(struct rank *rank)
{
	struct common *common = rank->common;
	CUdeviceptr buffer;

	use(rank);
	CHECK_OK(cuMemAlloc_v2(&buffer, 2 * MIB));
	CHECK_OK(cuIpcGetMemHandle(&common->handles[rank->number], buffer));
	all_here(common, rank->job->ranks, 1, 1);
	for (unsigned i = 0; i < rank->job->ranks; i++) {
		if (i != rank->number)
			CHECK_OK(cuIpcOpenMemHandle_v2(&buffer, common->handles[i], 1));
	}
}

void rank_sign(struct rank *ranks, unsigned count)
{
	enum sign sign = ranks->job->sign;

	if (sign == SIGN_IPC) {
		sign_by_ipc(ranks);
		return;
	}
	if (sign == SIGN_PEER)
		sign_by_peers(ranks, count);
	else if (sign == SIGN_ACCESS)
		sign_by_access(ranks, count);
	all_here(ranks->common, ranks->job->ranks, count, 1);
}

/* -- steps ------------------------------------------------------------------------------------ */

static unsigned random_of(struct rank *rank)
{
	rank->random = rank->random * 1103515245 + 12345;
	return rank->random >> 16 & 0x7fff;
}

static void pause_host(struct rank *rank, uint64_t step)
{
	const struct job *job = rank->job;

	if (job->stall_ns && random_of(rank) % 4 == 0)
		sleep_ns(job->stall_ns * random_of(rank) / 0x8000);
	if (job->late_ns && rank->number + 1 == job->ranks && step % 50 == 49)
		sleep_ns(job->late_ns);
}

void rank_begin(struct rank *rank, uint64_t step)
{
	const struct job *job = rank->job;

	use(rank);
	pause_host(rank, step);
	POKE(rank->common->begun[rank->number], step + 1);
	if (job->graph)
		CHECK_OK(cuGraphLaunch(rank->graph, rank->stream));
	else if (job->comms > 1 && !job->pipeline)
		step_overlapped(rank);
	else
		step_in_line(rank);
	CHECK_OK(cuEventRecord(rank->steps[step % (job->ahead + 1)], rank->stream));
}

static bool meets(const struct rank *rank, unsigned other)
{
	return !rank->job->pipeline || other + 1 == rank->number || other == rank->number + 1;
}

void rank_end(struct rank *rank, uint64_t step)
{
	struct common *common = rank->common;

	use(rank);
	CHECK_OK(cuEventSynchronize(rank->steps[step % (rank->job->ahead + 1)]));
	POKE(common->done[rank->number], step + 1);
	for (unsigned i = 0; i < rank->job->ranks; i++)
		CHECK(!meets(rank, i) || PEEK(common->begun[i]) > step);
}

/* The first rank says how many steps there are, early enough: none of the others, of which each has
 * to wait for it, is as far as that. */
static void decide_end(struct rank *rank, uint64_t step, uint64_t since_ns)
{
	const struct job *job = rank->job;
	struct common *common = rank->common;
	double elapsed_s = (double)(now_ns() - since_ns) / 1e9;

	if (!common->warm_at_ns && elapsed_s >= job->warm_s) {
		common->warm_steps = PEEK(common->done[0]);
		POKE(common->warm_at_ns, now_ns());
	}
	if (PEEK(common->end) == UINT64_MAX && elapsed_s >= job->warm_s + job->seconds)
		POKE(common->end, step + job->ahead + 4);
}

/* How many steps the host waits for, after it has queued so many. */
static uint64_t due(const struct job *job, uint64_t queued)
{
	if (job->batch)
		return queued - queued % job->ahead;
	return queued > job->ahead ? queued - job->ahead : 0;
}

static void end_until(struct rank *ranks, unsigned count, uint64_t *ended, uint64_t until)
{
	for (; *ended < until; ++*ended) {
		for (unsigned i = 0; i < count; i++)
			rank_end(&ranks[i], *ended);
	}
}

void ranks_run(struct rank *ranks, unsigned count)
{
	struct common *common = ranks->common;
	const struct job *job = ranks->job;
	uint64_t step, ended = 0, since_ns;

	all_here(common, job->ranks, count, 2);
	since_ns = now_ns();
	for (step = 0; step < PEEK(common->end); step++) {
		if (!ranks->number)
			decide_end(ranks, step, since_ns);
		for (unsigned i = 0; i < count; i++)
			rank_begin(&ranks[i], step);
		end_until(ranks, count, &ended, due(job, step + 1));
	}
	end_until(ranks, count, &ended, step);
	if (!ranks->number)
		POKE(common->end_at_ns, now_ns());
}
