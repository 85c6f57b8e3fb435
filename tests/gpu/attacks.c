/*
 * attacks CASE: tries one way past the memory quota of the slice in which it runs, prints one line,
 * and keeps what it has taken until its standard input ends. The line begins with `done` (the
 * attack was refused), `wrong` (anything else), or `skip` (the driver lacks what the attack needs).
 * An attack that is not refused stops at 3 GiB.
 *
 * attacks lend | churn: the neighbours of the cases `importer` and `loads`, in no slice.
 * attacks used: prints what the device holds, in MiB rounded up, as NVML says.
 * attacks peak: the most that the device held at any moment until its standard input ended.
 */
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "nvml_abi.h"
#include "paths.h"

#define NVML_HOOK(name, parameters, arguments) nvmlReturn_t name parameters;
#define NVML_CALL(name, parameters)            nvmlReturn_t name parameters;
#include "nvml.def"

#define MOST_BYTES  (3072 * MIB) /* of an attack that is not refused */
#define ALIVE_S     40           /* a process that has not ended by then is killed */
#define GRANULE     (2 * MIB)
#define SMALL_BYTES (768 * 1024) /* two such blocks share a granule */
#define PIECE_BYTES (32 * MIB)   /* of other memory that an attack takes in steps */
#define LENT_BYTES  (3072 * MIB) /* by the neighbour of `importer` */
#define FD          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static size_t taken; /* bytes, by the attack so far */
static CUcontext context;
static CUdeviceptr result_address; /* for kernels */

static void must(CUresult result, CUresult wanted, const char *what)
{
	if (result == wanted)
		return;
	printf("wrong %s: error %u\n", what, result);
	_exit(1);
}

#define MUST(call) must(call, CUDA_SUCCESS, #call)

/* Ends an attack, whose last call must have been refused. */
static void report(CUresult result)
{
	must(result, CUDA_ERROR_OUT_OF_MEMORY, "the end of the attack");
	printf("done refused after %zu MiB\n", taken / MIB);
}

static void start_cuda(void)
{
	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&context, 0));
	MUST(cuCtxSetCurrent(context));
	MUST(cuMemAlloc_v2(&result_address, GRANULE)); /* which no other block shares */
}

static CUresult take_plain(void)
{
	CUdeviceptr address;
	CUresult result = CUDA_SUCCESS;

	while (taken < MOST_BYTES && !(result = cuMemAlloc_v2(&address, GRANULE)))
		taken += GRANULE;
	return result;
}

/* -- code ------------------------------------------------------------------------------------- */

/* Code of a kernel with `local` bytes of local memory for each thread, so many instructions, for
 * which the driver's compiler takes time, and a variable of `variable` bytes, or none. */
static char *make_code(unsigned local, unsigned instructions, size_t variable)
{
	char *text = malloc(2048 + 32 * instructions), *end = text;

	if (!text)
		exit(1);
	end += sprintf(end,
		       ".version 7.0\n.target sm_70\n.address_size 64\n"
		       "%s.visible .global .align 4 .b8 held[%zu];\n"
		       ".visible .entry attack(.param .u64 to, .param .u32 at)\n{\n"
		       ".reg .b64 %%rd<5>;\n.reg .b32 %%r<3>;\n.local .align 4 .b8 mine[%u];\n"
		       "ld.param.u64 %%rd1, [to];\nld.param.u32 %%r1, [at];\n"
		       "mov.u32 %%r2, %%r1;\n",
		       variable ? "" : "//", variable, local);
	for (unsigned i = 0; i < instructions; i++)
		end += sprintf(end, "mad.lo.u32 %%r2,%%r2,%%r1,%u;\n", i);
	strcpy(end, "cvt.u64.u32 %rd2, %r1;\nmov.u64 %rd3, mine;\nadd.s64 %rd4, %rd3, %rd2;\n"
		    "st.local.u32 [%rd3], %r1;\nst.local.u32 [%rd4], %r2;\n"
		    "ld.local.u32 %r2, [%rd3];\nst.u32 [%rd1], %r2;\nret;\n}\n");
	return text;
}

static CUresult launch(CUfunction function)
{
	void *parameters[] = {&result_address, &(unsigned){8}};
	CUresult result = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);

	return result == CUDA_SUCCESS ? cuCtxSynchronize() : result;
}

static CUresult launch_with_local(unsigned local)
{
	CUfunction function;
	CUmodule module;
	CUresult result = cuModuleLoadData(&module, make_code(local, 0, 0));

	if (result == CUDA_SUCCESS)
		result = cuModuleGetFunction(&function, module, "attack");
	return result == CUDA_SUCCESS ? launch(function) : result;
}

/* Loads modules that have a variable of a piece each. */
static void take_variables(size_t most)
{
	static char *code;
	CUmodule module;

	code = code ? code : make_code(16, 0, PIECE_BYTES);
	while (taken < most && cuModuleLoadData(&module, code) == CUDA_SUCCESS)
		taken += PIECE_BYTES;
}

/* -- a second thread -------------------------------------------------------------------------- */

static pthread_t worker;
static bool at_work = true;                /* atomic */
static const char *work_code;              /* of a module that it loads and unloads; or NULL */
static size_t least_mib, choice;           /* of blocks: least_mib to least_mib + choice - 1 */
static unsigned work_blocks, work_refused; /* how many blocks, and how many of these */

static void *work(void *none)
{
	unsigned seed = 1;
	CUdeviceptr address;
	CUmodule module;

	MUST(cuCtxSetCurrent(context));
	for (; __atomic_load_n(&at_work, __ATOMIC_RELAXED); work_blocks++) {
		if (work_code && cuModuleLoadData(&module, work_code) == CUDA_SUCCESS)
			cuModuleUnload(module);
		if (cuMemAlloc_v2(&address, MIB * (least_mib + (size_t)rand_r(&seed) % choice)) ==
		    CUDA_SUCCESS)
			MUST(cuMemFree_v2(address));
		else
			work_refused++;
	}
	return none;
}

static void start_work(const char *code, size_t least, size_t most)
{
	work_code = code, least_mib = least, choice = most - least + 1;
	pthread_create(&worker, NULL, work, NULL);
}

static void end_work(void)
{
	__atomic_store_n(&at_work, false, __ATOMIC_RELAXED);
	pthread_join(worker, NULL);
}

/* -- dup: an exported descriptor is duplicated, the first is closed, and the handle released --- */

static CUresult export_once(size_t bytes, bool imports)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location.type = CU_MEM_LOCATION_TYPE_DEVICE,
				    .requestedHandleTypes = FD};
	CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	CUresult result = cuMemCreate(&handle, bytes, &prop, 0);
	int first, second;

	if (result != CUDA_SUCCESS)
		return result;
	MUST(cuMemExportToShareableHandle(&first, handle, FD, 0));
	second = dup(first);
	close(first);
	MUST(cuMemRelease(handle));
	if (!imports || cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)second, FD))
		return CUDA_SUCCESS;
	MUST(cuMemAddressReserve(&address, bytes, 0, 0, 0));
	result = cuMemMap(address, bytes, 0, handle, 0);
	MUST(cuMemRelease(handle)); /* the mapping keeps the memory */
	if (result == CUDA_SUCCESS) {
		MUST(cuMemSetAccess(address, bytes, &access, 1));
		MUST(cuMemsetD8_v2(address, 1, bytes));
	}
	return CUDA_SUCCESS;
}

/* Every other allocation is imported again, unless the import is refused. */
static void attack_dup(void)
{
	CUresult result = CUDA_SUCCESS;

	for (int living = 0; living < 65; living++)
		MUST(export_once(GRANULE, false));
	while (taken < MOST_BYTES && !(result = export_once(PIECE_BYTES, taken & PIECE_BYTES)))
		taken += PIECE_BYTES;
	report(result);
}

/* -- ipc_granule, dma_buf: of two blocks in a granule, the exported one is freed first --------- */

static int wires[2]; /* of `ipc_granule`, to the other process of the slice */

/* The other process opens each handle that comes. */
static void start_opener(void)
{
	CUdeviceptr address;
	CUipcMemHandle ipc;
	CUresult result;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, wires) != 0)
		exit(1);
	if (fork() != 0) {
		close(wires[1]);
		return;
	}
	close(wires[0]);
	alarm(ALIVE_S);
	start_cuda();
	while (read(wires[1], &ipc, sizeof(ipc)) == sizeof(ipc)) {
		result = cuIpcOpenMemHandle_v2(&address, ipc, 1);
		if (write(wires[1], &result, sizeof(result)) != sizeof(result))
			break;
	}
	_exit(0);
}

static CUresult export_block(CUdeviceptr address)
{
	CUdeviceptr page = (address + 65535) / 65536 * 65536;
	CUipcMemHandle ipc;
	CUresult result;

	if (!wires[0]) /* a descriptor is written to `ipc` */
		return cuMemGetHandleForAddressRange(&ipc, page, 65536,
						     CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
	MUST(cuIpcGetMemHandle(&ipc, address));
	if (write(wires[0], &ipc, sizeof(ipc)) != sizeof(ipc) ||
	    read(wires[0], &result, sizeof(result)) != sizeof(result))
		result = CUDA_ERROR_UNKNOWN;
	return result;
}

static void attack_granules(void)
{
	unsigned rounds = 0, together = 0;
	CUresult result = CUDA_SUCCESS;
	CUdeviceptr first, second;

	for (; taken < MOST_BYTES; taken += GRANULE, rounds++) {
		if ((result = cuMemAlloc_v2(&first, SMALL_BYTES)) ||
		    (result = cuMemAlloc_v2(&second, SMALL_BYTES)) ||
		    (result = export_block(first)))
			break;
		together += first / GRANULE == second / GRANULE;
		MUST(cuMemFree_v2(first));
		MUST(cuMemFree_v2(second));
	}
	if (!rounds && result == CUDA_ERROR_NOT_SUPPORTED)
		printf("skip the driver does not export blocks so\n");
	else if (together < rounds / 2)
		printf("skip blocks of %d KiB share no granule here\n", SMALL_BYTES / 1024);
	else
		report(result);
}

/* -- long_call: a thread is inside slow calls all the time, while the driver's memory grows ---- */

/* Local memory of 2 KiB a thread fits, and of 16 KiB does not. */
static void attack_long_call(void)
{
	CUresult result;
	time_t until = time(NULL) + 6;

	start_work(make_code(16, 6000, 0), 256, 256);
	for (unsigned local = 512; local <= 2048; local += 512)
		MUST(launch_with_local(local));
	do {
		take_variables(MOST_BYTES);
		result = take_plain();
	} while (time(NULL) < until && taken < MOST_BYTES);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		result = launch_with_local(16 << 10);
	end_work();
	report(result);
}

/* -- importer: memory of a process that is in no slice hides none that the importer takes ------ */

static void lend(void)
{
	CUdeviceptr address;
	CUipcMemHandle ipc;

	MUST(cuMemAlloc_v2(&address, LENT_BYTES));
	MUST(cuIpcGetMemHandle(&ipc, address));
	fwrite(&ipc, sizeof(ipc), 1, stdout);
	fflush(stdout);
}

/* Its standard input begins with what lend() has printed. */
static void attack_importer(void)
{
	CUdeviceptr address;
	CUipcMemHandle ipc;

	if (fread(&ipc, sizeof(ipc), 1, stdin) != 1)
		exit(2);
	MUST(cuIpcOpenMemHandle_v2(&address, ipc, 1));
	take_variables(256 * MIB);
	report(take_plain());
}

/* -- local: a kernel for whose local memory the slice has no room ------------------------------ */

/* The driver refuses the kernel's handle, or else the launch. */
static void must_be_refused(CUresult result, void *handle, const char *way)
{
	must(result ? result : launch((CUfunction)handle), CUDA_ERROR_OUT_OF_MEMORY, way);
}

static void ask_for_local(unsigned local)
{
	char *code = make_code(local, 0, 0);
	CUfunction function = NULL;
	CUkernel kernel = NULL;
	CUlibrary library;
	CUmodule module;
	CUresult result;

	MUST(cuModuleLoadData(&module, code));
	MUST(cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0));
	result = cuModuleGetFunction(&function, module, "attack");
	must_be_refused(result, function, "cuModuleGetFunction");
	MUST(cuCtxSetCurrent(NULL));
	result = cuLibraryGetKernel(&kernel, library, "attack");
	MUST(cuCtxSetCurrent(context));
	must_be_refused(result, kernel, "cuLibraryGetKernel with no context");
	result = cuModuleEnumerateFunctions(&function, 1, module);
	if (result != CUDA_ERROR_NOT_FOUND && result != CUDA_ERROR_NOT_SUPPORTED)
		must_be_refused(result, function, "cuModuleEnumerateFunctions");
}

/* First 16 KiB a thread, which are 4 GiB on an H100. If those are not refused, the attack ends, as
 * 512 KiB a thread would take the whole device. */
static void attack_local(void)
{
	ask_for_local(16 << 10);
	ask_for_local(512 << 10);
	MUST(launch_with_local(1024)); /* the refusals have not broken the context */
	report(take_plain());
}

/* -- loads: nothing is refused that has room, alongside a neighbour that never rests ----------- */

static void churn(void)
{
	start_work(NULL, 64, 512);
	printf("churns\n");
}

static void attack_loads(void)
{
	unsigned refused = 0;
	CUmodule modules[400] = {0};
	size_t available, total;

	start_work(NULL, 16, 16);
	for (int i = 0; i < 400; i++) {
		refused += cuModuleLoadData(&modules[i], make_code(16, 50, 0)) != CUDA_SUCCESS;
		if (i >= 16 && modules[i - 16])
			MUST(cuModuleUnload(modules[i - 16]));
	}
	end_work();
	usleep(50000); /* by then a comparison with NVML is due */
	MUST(cuMemGetInfo_v2(&available, &total));
	printf("%s %u of 400 loads and %u of %u blocks refused; at the end %zu of %zu MiB free\n",
	       refused || work_refused || available < total - 1024 * MIB ? "wrong" : "done",
	       refused, work_refused, work_blocks, available / MIB, total / MIB);
}

/* -- outside ---------------------------------------------------------------------------------- */

static int watch(bool until_end)
{
	struct pollfd input = {0, POLLIN, 0};
	unsigned long long highest = 0;
	nvmlMemory_t memory = {0};
	nvmlDevice_t device = NULL;
	bool failed = nvmlInit_v2() || nvmlDeviceGetHandleByIndex_v2(0, &device);

	do {
		failed = failed || nvmlDeviceGetMemoryInfo(device, &memory);
		highest = memory.used > highest ? memory.used : highest;
	} while (!failed && until_end && poll(&input, 1, 0) == 0);
	printf("%llu\n", (highest + MIB - 1) / MIB);
	return failed;
}

static const struct role {
	const char *name;
	void (*run)(void);
} roles[] = {
	{"dup", attack_dup},
	{"ipc_granule", attack_granules},
	{"dma_buf", attack_granules},
	{"long_call", attack_long_call},
	{"importer", attack_importer},
	{"local", attack_local},
	{"loads", attack_loads},
	{"lend", lend},
	{"churn", churn},
	{NULL, NULL},
};

int main(int argc, char **argv)
{
	const struct role *role = roles;
	const char *name = argc == 2 ? argv[1] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(ALIVE_S);
	if (strcmp(name, "used") == 0 || strcmp(name, "peak") == 0)
		return watch(*name == 'p');
	while (role->name && strcmp(name, role->name) != 0)
		role++;
	if (!role->name)
		return 2;
	if (strcmp(name, "ipc_granule") == 0)
		start_opener();
	start_cuda();
	role->run();
	while (getchar() != EOF)
		;
	return 0;
}
