/* See launch.h. */
#include "launch.h"

#include <sys/wait.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

CUfunction nop, spin;
CUstream stream;
CUcontext context;
CUgraphExec graph; /* one kernel */

/* -- the words -------------------------------------------------------------------------------- */

struct vgpu_hami_region *words;

void words_map(void)
{
	int fd = open(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), O_RDWR | O_CLOEXEC);

	words = mmap(NULL, sizeof(*words), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(words != MAP_FAILED);
	close(fd);
}

static int32_t *status_of(pid_t pid)
{
	int slot = ledger_slot(pid);

	CHECK(slot >= 0);
	return &words->slots[slot].status;
}

void suspend(pid_t pid)
{
	POKE(*status_of(pid), VGPU_SLOT_SUSPENDED);
}

void resume(pid_t pid)
{
	POKE(*status_of(pid), VGPU_SLOT_RUNNING);
}

/* -- the functions that launch ---------------------------------------------------------------- */

#define CU_HOOK(name, class, parameters, arguments) typedef CUresult type_##name parameters;
#include "cuda.def"

static uint64_t no_time;
static void *spin_parameters[] = {&no_time};

static CUresult call_grid(void *function, CUstream where)
{
	return ((type_cuLaunchKernel *)function)(nop, 1, 1, 1, 32, 1, 1, 0, where, NULL, NULL);
}

static CUresult call_cooperative(void *function, CUstream where)
{
	return ((type_cuLaunchCooperativeKernel *)function)(spin, 1, 2, 3, 4, 5, 6, 7, where,
							    spin_parameters);
}

static CUresult call_config(void *function, CUstream where)
{
	const CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, where, NULL, 0};

	return ((type_cuLaunchKernelEx *)function)(&config, spin, spin_parameters, NULL);
}

static CUresult call_list(void *function, CUstream where)
{
	CUDA_LAUNCH_PARAMS list[] = {{nop, 1, 1, 1, 32, 1, 1, 0, where, NULL}};

	return ((type_cuLaunchCooperativeKernelMultiDevice *)function)(list, 1, 0);
}

static CUresult call_plain(void *function, CUstream where)
{
	(void)where;
	return ((type_cuLaunch *)function)(nop);
}

static CUresult call_wide(void *function, CUstream where)
{
	(void)where;
	return ((type_cuLaunchGrid *)function)(nop, 2, 2);
}

static CUresult call_wide_async(void *function, CUstream where)
{
	return ((type_cuLaunchGridAsync *)function)(nop, 2, 2, where);
}

static CUresult call_graph(void *function, CUstream where)
{
	return ((type_cuGraphLaunch *)function)(graph, where);
}

const struct launcher launchers[] = {
	{"cuLaunchKernel", "cuLaunchKernel", (void *)cuLaunchKernel, call_grid, false, false, 0},
	{"cuLaunchKernel_ptsz", "cuLaunchKernel", (void *)cuLaunchKernel_ptsz, call_grid, true,
	 false, 0},
	{"cuLaunchKernelEx", "cuLaunchKernelEx", (void *)cuLaunchKernelEx, call_config, false,
	 false, 0},
	{"cuLaunchKernelEx_ptsz", "cuLaunchKernelEx", (void *)cuLaunchKernelEx_ptsz, call_config,
	 true, false, 0},
	{"cuLaunchCooperativeKernel", "cuLaunchCooperativeKernel",
	 (void *)cuLaunchCooperativeKernel, call_cooperative, false, false, 0},
	{"cuLaunchCooperativeKernel_ptsz", "cuLaunchCooperativeKernel",
	 (void *)cuLaunchCooperativeKernel_ptsz, call_cooperative, true, false, 0},
	{"cuLaunchCooperativeKernelMultiDevice", "cuLaunchCooperativeKernelMultiDevice",
	 (void *)cuLaunchCooperativeKernelMultiDevice, call_list, false, false, 0},
	{"cuLaunch", "cuLaunch", (void *)cuLaunch, call_plain, false, true, 0},
	{"cuLaunchGrid", "cuLaunchGrid", (void *)cuLaunchGrid, call_wide, false, true, 0},
	{"cuLaunchGridAsync", "cuLaunchGridAsync", (void *)cuLaunchGridAsync, call_wide_async,
	 false, false, 0},
	{"cuGraphLaunch", "cuGraphLaunch", (void *)cuGraphLaunch, call_graph, false, false, 0},
	{"cuGraphLaunch_ptsz", "cuGraphLaunch", (void *)cuGraphLaunch_ptsz, call_graph, true, false,
	 0},
};

_Static_assert(sizeof(launchers) / sizeof(*launchers) == LAUNCHERS, "launch.h says how many");

/* -- the ways to them ------------------------------------------------------------------------- */

static void *by_link(const struct launcher *launcher)
{
	return launcher->linked;
}

static void *by_name(const struct launcher *launcher)
{
	return dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), launcher->name);
}

static void *by_driver(const struct launcher *launcher)
{
	void *function = NULL;

	CHECK_OK(cuGetProcAddress_v2(
		launcher->plain, &function, launcher->version ? launcher->version : 13000,
		launcher->per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0, NULL));
	return function;
}

void *(*const ways[WAYS])(const struct launcher *) = {by_link, by_name, by_driver};

/* -- a process that launches ------------------------------------------------------------------ */

static CUgraph graph_captured(void)
{
	CUgraph captured;

	CHECK_OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK_OK(call_grid((void *)cuLaunchKernel, stream));
	CHECK_OK(cuStreamEndCapture(stream, &captured));
	return captured;
}

/* With a slice, unless that is NULL. */
void launch_start(const char *limit)
{
	static const char ptx[] = ".version 7.0\n.entry nop() { ret; }\n";
	CUmodule module;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	context = cuda_start(0);
	CHECK_OK(cuStreamCreate(&stream, NON_BLOCKING));
	CHECK_OK(cuModuleLoadData(&module, ptx));
	CHECK_OK(cuModuleGetFunction(&nop, module, "nop"));
	CHECK_OK(cuFuncSetBlockShape(nop, 32, 1, 1));
	spin = spin_load();
	if (limit)
		words_map();
	CHECK_OK(cuGraphInstantiateWithFlags(&graph, graph_captured(), 0));
}

CUresult launch(void)
{
	return call_grid((void *)cuLaunchKernel, stream);
}

/* -- launches on threads of their own --------------------------------------------------------- */

static void *attempt_run(void *arg)
{
	struct attempt *attempt = arg;

	CHECK_OK(cuCtxSetCurrent(context));
	attempt->result = attempt->launcher->call(attempt->function, attempt->where);
	POKE(attempt->done, true);
	return NULL;
}

void attempt_begin(struct attempt *attempt, const struct launcher *launcher, void *function,
		   CUstream where)
{
	*attempt = (struct attempt){.launcher = launcher, .function = function, .where = where};
	CHECK(pthread_create(&attempt->thread, NULL, attempt_run, attempt) == 0);
}

void attempt_waits(const struct attempt *attempt)
{
	if (PEEK(attempt->done))
		check_failed(__FILE__, __LINE__, attempt->launcher->name);
}

void attempt_stays(struct attempt *attempt, const struct launcher *launcher)
{
	attempt_begin(attempt, launcher, launcher->linked, stream);
	sleep_ms(STAY_MS);
	attempt_waits(attempt);
}

void attempt_ends(struct attempt *attempt, CUresult expected)
{
	for (unsigned ms = 0; !PEEK(attempt->done); ms++) {
		if (ms == LONG_MS)
			check_failed(__FILE__, __LINE__, attempt->launcher->name);
		sleep_ms(1);
	}
	CHECK(pthread_join(attempt->thread, NULL) == 0);
	CHECK_EQUAL(attempt->result, expected);
}

/* -- who is held ------------------------------------------------------------------------------ */

void held(const struct launcher *list, size_t count, void (*hold)(void), void (*let_go)(void))
{
	static struct attempt attempts[WAYS][64];

	CHECK_AT_MOST(count, 64);
	hold();
	for (size_t w = 0; w < WAYS; w++)
		for (size_t i = 0; i < count; i++) {
			void *function = ways[w](&list[i]);

			CHECK(function);
			attempt_begin(&attempts[w][i], &list[i], function, stream);
		}
	sleep_ms(2 * STAY_MS);
	for (size_t w = 0; w < WAYS; w++)
		for (size_t i = 0; i < count; i++)
			attempt_waits(&attempts[w][i]);
	let_go();
	for (size_t w = 0; w < WAYS; w++)
		for (size_t i = 0; i < count; i++)
			attempt_ends(&attempts[w][i], CUDA_SUCCESS);
}

void suspend_self(void)
{
	suspend(getpid());
}

void resume_self(void)
{
	resume(getpid());
}

void block(void)
{
	POKE(words->recent_kernel, -1);
}

void unblock(void)
{
	POKE(words->recent_kernel, 0);
}

/* -- fork ---------------------------------------------------------------------------------------
 */

int child_of(void (*body)(void))
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		alarm(WAIT_S);
		body();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	return status;
}

void as_the_driver_says(void)
{
	for (unsigned i = 0; i < 100; i++)
		CHECK_EQUAL(launch(), CUDA_ERROR_NOT_INITIALIZED);
}
