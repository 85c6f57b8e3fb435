/* Several streams, threads, and graphs: one quota for all of them. */
#include "pace.h"

#define STREAMS 4

struct turns {
	CUstream streams[STREAMS];
	unsigned count, turn;
	uint64_t ns;
};

static uint64_t step_in_turns(void *arg)
{
	struct turns *turns = arg;

	busy(spin, turns->ns, turns->streams[turns->turn++ % turns->count]);
	return turns->ns;
}

static const struct number {
	const char *name;
	unsigned count;
	uint64_t ns; /* of each kernel */
} numbers[] = {{"two", 2, MS}, {"four", 4, MS / 5}};

static void several(const struct number *of)
{
	struct turns turns = {.count = of->count, .ns = of->ns};

	pace_start("50");
	for (unsigned i = 0; i < of->count; i++)
		CHECK_OK(cuStreamCreate(&turns.streams[i], NON_BLOCKING));
	check_share("streams in turns", step_in_turns, &turns, 50);
}

TEST_TABLE(numbers, several);

/* -- threads ---------------------------------------------------------------------------------- */

#define THREADS 4

static uint64_t given, delayed[THREADS];
static bool enough;

static void *launch_on(void *arg)
{
	unsigned self = (unsigned)(uintptr_t)arg;
	uint64_t ns = 300000;
	void *parameters[] = {&ns};

	CHECK_OK(cuCtxSetCurrent(context));
	while (!PEEK(enough)) {
		CHECK_OK(cuLaunchKernel_ptsz(spin, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
		__atomic_fetch_add(&given, ns, __ATOMIC_SEQ_CST);
		POKE(delayed[self], delayed_ns());
	}
	return arg;
}

static uint64_t delayed_most(void)
{
	uint64_t most = 0;

	for (unsigned i = 0; i < THREADS; i++)
		most = PEEK(delayed[i]) > most ? PEEK(delayed[i]) : most;
	return most;
}

static struct share share_of_threads(unsigned ms)
{
	uint64_t began = now_ns(), before = PEEK(given), late = delayed_most(), elapsed, got;

	sleep_ms(ms);
	elapsed = now_ns() - began;
	got = PEEK(given) - before;
	late = delayed_most() - late;
	if (late > elapsed / 2)
		late = elapsed / 2;
	return (struct share){100.0 * (double)got / (double)elapsed,
			      100.0 * (double)got / (double)(elapsed - late)};
}

/* Each on its own default stream. */
TEST(per_thread)
{
	struct threads threads;
	unsigned attempt = 0;

	pace_start("50");
	threads = threads_start(THREADS, launch_on);
	sleep_ms(300);
	while (!share_is_right("threads", share_of_threads(1500), 50, LESS_PCT, attempt))
		attempt++;
	POKE(enough, true);
	threads_join(threads);
}

/* -- graphs ----------------------------------------------------------------------------------- */

#define NODES 5

struct replay {
	CUgraphExec exec;
	uint64_t ns; /* of all its kernels */
};

static CUgraph graph_of(uint64_t ns)
{
	CUgraph captured;

	CHECK_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (unsigned i = 0; i < NODES; i++)
		busy(spin, ns / NODES, stream);
	CHECK_OK(cuStreamEndCapture(stream, &captured));
	return captured;
}

static uint64_t step_replay(void *arg)
{
	const struct replay *replay = arg;

	CHECK_OK(cuGraphLaunch(replay->exec, stream));
	return replay->ns;
}

static void update(const struct replay *replay)
{
	CUgraphExecUpdateResultInfo info;

	CHECK_OK(cuGraphExecUpdate_v2(replay->exec, graph_of(replay->ns), &info));
}

/* An update makes another graph of it, ten times as long, and back. */
TEST(graphs)
{
	struct replay replay = {.ns = MS};
	CUgraphExecUpdateResult result = 1;
	CUgraphNode node = NULL;

	pace_start("50");
	CHECK_OK(cuGraphInstantiateWithFlags(&replay.exec, graph_of(MS), 0));
	check_share("graph", step_replay, &replay, 50);
	replay.ns = 10 * MS;
	update(&replay);
	check_share("graph, updated", step_replay, &replay, 50);
	replay.ns = MS;
	CHECK_OK(cuGraphExecUpdate(replay.exec, graph_of(replay.ns), &node, &result));
	CHECK(!node && !result);
	check_share("graph, updated again", step_replay, &replay, 50);
	CHECK_OK(cuGraphExecDestroy(replay.exec));
}

/* Gives a kernel of it another length, by the older function or the newer. */
static void set_node(CUgraphExec exec, CUgraphNode node, uint64_t ns, bool older)
{
	void *parameters[] = {&ns};
	const CUDA_KERNEL_NODE_PARAMS_v1 old = {.func = spin,
						.gridDimX = 1,
						.gridDimY = 1,
						.gridDimZ = 1,
						.blockDimX = 1,
						.blockDimY = 1,
						.blockDimZ = 1,
						.kernelParams = parameters};
	const CUDA_KERNEL_NODE_PARAMS new = {.func = spin,
					     .gridDimX = 1,
					     .gridDimY = 1,
					     .gridDimZ = 1,
					     .blockDimX = 1,
					     .blockDimY = 1,
					     .blockDimZ = 1,
					     .kernelParams = parameters};

	if (older)
		CHECK_OK(cuGraphExecKernelNodeSetParams(exec, node, &old));
	else
		CHECK_OK(cuGraphExecKernelNodeSetParams_v2(exec, node, &new));
}

TEST(graph_nodes)
{
	struct replay replay = {.ns = MS};
	CUgraph made;
	CUgraphNode nodes[NODES];
	size_t count = NODES;

	pace_start("50");
	made = graph_of(MS);
	CHECK_OK(cuGraphGetNodes(made, nodes, &count));
	CHECK(count == NODES);
	CHECK_OK(cuGraphInstantiateWithFlags(&replay.exec, made, 0));
	check_share("graph", step_replay, &replay, 50);
	replay.ns = 10 * MS;
	for (unsigned i = 0; i < NODES; i++)
		set_node(replay.exec, nodes[i], replay.ns / NODES, i % 2);
	check_share("graph, nodes set", step_replay, &replay, 50);
	CHECK_OK(cuGraphExecDestroy(replay.exec));
}
