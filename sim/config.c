/*
 * Reading the simulated machine from the environment.
 *
 *   VGPU_SIM_GPUS            [COUNTx]SIZE{,[COUNTx]SIZE}, such as 80G or 2x80G,24G; default 1x80G.
 *                            SIZE is a number and one of K, M, G, T (powers of 1024)
 *   VGPU_SIM_STATE           path of the shared state; default: a file in /tmp for each user and
 *                            VGPU_SIM_GPUS
 *   VGPU_SIM_DRIVER_VERSION  the answer of cuDriverGetVersion; default 13000
 *   VGPU_SIM_CONTEXT_MIB     the cost of a context; default 518
 *   VGPU_SIM_MODULE_MIB      the cost of a loaded module or library; default 0
 *   VGPU_SIM_IPC_COUNTS      1: a handle that is opened again has the same address, as cuda.h says
 *   VGPU_SIM_MODULE_LAZY     1: a module without variables has that cost from its first use on
 *   VGPU_SIM_COPY_MB_S       speed of fills and copies in a GPU, in MB/s; default 2000000
 *   VGPU_SIM_HOST_COPY_MB_S  speed of copies from and to the host, in MB/s; default 0: they take
 *                            no time
 *   VGPU_SIM_PAGE_MB_S       speed at which managed memory comes back to a GPU, in MB/s; default 0:
 *                            it does not move
 *
 * The environment is read once in a process, under pthread_once. A value that makes no sense is
 * refused. It is never replaced by a default: otherwise tests would run on a machine that they did
 * not ask for.
 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct sim_config config; /* written by config_read, under once */
static bool valid;               /* likewise */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Reads a decimal number at *text, and moves *text to the end of the number. */
static bool number_read(const char **text, uint64_t max, uint64_t *ret_number)
{
	char *end;

	if (**text < '0' || **text > '9')
		return false;
	errno = 0;
	unsigned long long number = strtoull(*text, &end, 10);
	if (errno || number > max)
		return false;
	*text = end;
	*ret_number = number;
	return true;
}

static bool number_env(const char *name, uint64_t fallback, uint64_t max, uint64_t *ret_number)
{
	const char *text = getenv(name);

	*ret_number = fallback;
	if (!text || !*text)
		return true;
	const char *rest = text;
	if (number_read(&rest, max, ret_number) && !*rest)
		return true;
	fprintf(stderr, "vgpu-sim: %s=%s is not a number up to %llu\n", name, text,
		(unsigned long long)max);
	return false;
}

/* Reads one item of VGPU_SIM_GPUS. */
static bool gpus_read_item(const char **text)
{
	static const char units[] = "KMGT";
	uint64_t count = 1, size;

	if (!number_read(text, UINT64_MAX, &size))
		return false;
	if (**text == 'x') {
		count = size;
		++*text;
		if (!number_read(text, UINT64_MAX, &size))
			return false;
	}
	const char *unit = **text ? strchr(units, **text) : NULL;
	if (!unit)
		return false;
	++*text;
	unsigned shift = 10 * (unsigned)(unit - units + 1);
	if (!size || size > UINT64_MAX >> 16 >> shift || !count ||
	    count > SIM_GPUS_MAX - config.count)
		return false;
	while (count--)
		config.total_bytes[config.count++] = size << shift;
	return true;
}

static bool gpus_read(const char *value)
{
	const char *text = value;

	while (gpus_read_item(&text)) {
		if (!*text)
			return true;
		if (*text++ != ',')
			break;
	}
	fprintf(stderr,
		"vgpu-sim: VGPU_SIM_GPUS=%s makes no sense; use something like 80G or 2x80G,24G, "
		"up to %d GPUs\n",
		value, SIM_GPUS_MAX);
	return false;
}

/* A hash of VGPU_SIM_GPUS for the name of the default file: machines with other GPUs have other
 * files.
 */
static uint32_t gpus_hash(void)
{
	uint32_t hash = 2166136261u; /* FNV-1a */

	for (unsigned i = 0; i < config.count; i++) {
		for (unsigned shift = 0; shift < 64; shift += 8)
			hash = (hash ^ (uint8_t)(config.total_bytes[i] >> shift)) * 16777619u;
	}
	return hash;
}

static bool path_read(void)
{
	const char *path = getenv("VGPU_SIM_STATE");
	int length;

	if (path && *path) {
		length = snprintf(config.state_path, sizeof config.state_path, "%s", path);
	} else {
		length = snprintf(config.state_path, sizeof config.state_path,
				  "/tmp/vgpu-sim-%u-%08x.state", (unsigned)getuid(), gpus_hash());
	}
	if (length > 0 && (size_t)length < sizeof config.state_path)
		return true;
	fprintf(stderr, "vgpu-sim: VGPU_SIM_STATE is too long a path\n");
	return false;
}

static void config_read(void)
{
	const char *gpus = getenv("VGPU_SIM_GPUS");
	uint64_t version, context_mib, module_mib, ipc_counts, module_lazy, copy_mb_s,
		host_copy_mb_s, page_mb_s;

	valid = gpus_read(gpus && *gpus ? gpus : "1x80G") &&
		number_env("VGPU_SIM_DRIVER_VERSION", 13000, 1000000, &version) &&
		number_env("VGPU_SIM_CONTEXT_MIB", 518, UINT32_MAX, &context_mib) &&
		number_env("VGPU_SIM_MODULE_MIB", 0, UINT32_MAX, &module_mib) &&
		number_env("VGPU_SIM_IPC_COUNTS", 0, 1, &ipc_counts) &&
		number_env("VGPU_SIM_MODULE_LAZY", 0, SIM_LAZY_NODES, &module_lazy) &&
		number_env("VGPU_SIM_COPY_MB_S", 2000000, UINT32_MAX, &copy_mb_s) &&
		number_env("VGPU_SIM_HOST_COPY_MB_S", 0, UINT32_MAX, &host_copy_mb_s) &&
		number_env("VGPU_SIM_PAGE_MB_S", 0, UINT32_MAX, &page_mb_s) && path_read();
	if (valid) {
		config.driver_version = (int)version;
		config.ipc_counts = ipc_counts != 0;
		config.module_lazy = (enum sim_lazy)module_lazy;
		config.context_bytes = context_mib << 20;
		config.module_bytes = module_mib << 20;
		config.host_copy_mb_s = host_copy_mb_s;
		config.page_mb_s = page_mb_s;
		config.copy_mb_s = copy_mb_s ? copy_mb_s : 1;
	}
}

const struct sim_config *config_get(void)
{
	pthread_once(&once, config_read);
	return valid ? &config : NULL;
}

void config_uuid_bytes(unsigned gpu, unsigned char ret_bytes[16])
{
	static const unsigned char first[16] = {0x51, 0x30, 0, 0, 0, 0, 0x40, 0, 0x80};

	memcpy(ret_bytes, first, sizeof first);
	ret_bytes[15] = (unsigned char)gpu;
}

void config_uuid_text(unsigned gpu, char ret_text[SIM_UUID_TEXT])
{
	unsigned char b[16];

	config_uuid_bytes(gpu, b);
	snprintf(ret_text, SIM_UUID_TEXT,
		 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
		 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
		 b[14], b[15]);
}
