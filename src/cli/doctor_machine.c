/*
 * The machine: its kernel, the driver, and how the GPUs are set. The driver is asked by NVML, and
 * libcuda is only looked for. To start CUDA takes a fifth of a second, and a place among the GPU's
 * processes.
 */
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include "doctor.h"
#include "env.h"

#define CONTROL_NODE   "/dev/nvidiactl"
#define MEMORY_NODE    "/dev/nvidia-uvm"
#define WSL_NODE       "/dev/dxg"
#define MODULE_VERSION "/proc/driver/nvidia/version"

#define HMM_PARAMETER "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm"
#define ATS_PARAMETER "/sys/module/nvidia_uvm/parameters/uvm_ats_mode"

#define CUDA_OLDEST    11000 /* older drivers were never tried, not even simulated */
#define CUDA_OF_TABLES 13000 /* api/symbols/cuda-13.0.txt */

#define MPS_VARIABLE "CUDA_MPS_PIPE_DIRECTORY"
#define MPS_DEFAULT  "/tmp/nvidia-mps"
#define MPS_PROCESS  "nvidia-cuda-mps" /* of its daemon and its server, as /proc cuts names */

#define VGPUD_UNIT "vgpud.service"

/* The first line of a file; false: it cannot be read. */
static bool first_line(const char *path, char *buf, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, buf, len - 1);

	if (fd >= 0)
		close(fd);
	if (got < 0)
		return false;
	buf[got] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return true;
}

/* -- kernel and libc --------------------------------------------------------------------------- */

static void check_kernel(struct doctor *doctor)
{
	struct utsname name;

	if (uname(&name) < 0)
		return;
	doctor_found(doctor, DOCTOR_OK, "%s %s on %s", name.sysname, name.release, name.machine);
}

static bool has_musl(char *ret_path, size_t len)
{
	const struct dirent *entry;
	DIR *dir = opendir("/lib");
	bool found = false;

	if (!dir)
		return false;
	while (!found && (entry = readdir(dir)))
		if (strncmp(entry->d_name, "ld-musl-", 8) == 0) {
			snprintf(ret_path, len, "/lib/%.200s", entry->d_name);
			found = true;
		}
	closedir(dir);
	return found;
}

static void check_libc(struct doctor *doctor)
{
	char musl[256];
	bool has_it = has_musl(musl, sizeof(musl));

#ifdef __GLIBC__
	const char *version = gnu_get_libc_version();

	if (has_it) {
		doctor_found(doctor, DOCTOR_NOTE, "glibc %s, and musl alongside it (%s)", version,
			     musl);
		doctor_advise(doctor, "Know that programs for musl are not limited; \"vgpu doctor "
				      "PROGRAM\" says what one is for");
	} else {
		doctor_found(doctor, DOCTOR_OK, "glibc %s", version);
	}
#else
	doctor_found(doctor, DOCTOR_FAIL, "this vgpu was built for another libc than glibc%s%s",
		     has_it ? ": " : "", has_it ? musl : "");
	doctor_advise(doctor, "Take one that was built with glibc 2.17 or newer, as libvgpu.so and "
			      "whatever it holds must be");
#endif
}

/* -- device nodes ------------------------------------------------------------------------------ */

static unsigned count_gpu_nodes(unsigned *ret_closed)
{
	const struct dirent *entry;
	unsigned count = 0;
	DIR *dir = opendir("/dev");
	char path[300];

	*ret_closed = 0;
	while (dir && (entry = readdir(dir))) {
		if (strncmp(entry->d_name, "nvidia", 6) != 0 ||
		    !isdigit((unsigned char)entry->d_name[6]))
			continue;
		snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
		count++;
		*ret_closed += access(path, R_OK | W_OK) != 0;
	}
	if (dir)
		closedir(dir);
	return count;
}

static void no_control_node(struct doctor *doctor)
{
	if (access(WSL_NODE, F_OK) == 0) {
		doctor_found(doctor, DOCTOR_NOTE, "WSL2, whose driver is behind %s", WSL_NODE);
		doctor_advise(doctor, "Know that vgpu was not tried on WSL2");
	} else if (doctor->has_gpus) {
		doctor_found(doctor, DOCTOR_NOTE,
			     "there is no %s, and NVML answers nevertheless, as the simulated "
			     "driver's does",
			     CONTROL_NODE);
		doctor_advise(doctor, "If there should be a real driver here, take the directory "
				      "of the simulated one out of LD_LIBRARY_PATH");
	} else {
		doctor_found(doctor, DOCTOR_FAIL, "there is no %s", CONTROL_NODE);
		doctor_advise(doctor, "Install NVIDIA's driver, or load it (modprobe nvidia); in a "
				      "container, start that with its GPUs (docker run --gpus)");
	}
}

/* One that is there, or should be, where the driver's other nodes are. */
static bool check_node(struct doctor *doctor, const char *path, const char *cure)
{
	if (access(path, R_OK | W_OK) == 0)
		return true;
	doctor_found(doctor, DOCTOR_FAIL, "%s cannot be opened (%s)", path, strerror(errno));
	doctor_advise(doctor, "%s", cure);
	return false;
}

static void check_devices(struct doctor *doctor)
{
	static const char permit[] = "Give this user access to the driver's nodes (mode 0666 is "
				     "NVIDIA's default; ModifyDeviceFiles says so)";
	unsigned count, closed;

	doctor->has_gpus = gpus_examine(&doctor->gpus, &doctor->driver, &doctor->gpus_fault) == 0;
	if (access(CONTROL_NODE, F_OK) != 0) {
		no_control_node(doctor);
		return;
	}
	count = count_gpu_nodes(&closed);
	if (!check_node(doctor, CONTROL_NODE, permit))
		return;
	if (!check_node(doctor, MEMORY_NODE,
			access(MEMORY_NODE, F_OK) == 0
				? permit
				: "Make it (nvidia-modprobe -u -c 0, as root); in a container, "
				  "start that with its GPUs"))
		return;
	if (count == closed) {
		doctor_found(doctor, DOCTOR_FAIL, "%s /dev/nvidia0, nor another GPU's node",
			     count ? "this user may not open" : "there is no");
		doctor_advise(doctor, "%s", count ? permit : "Start the container with its GPUs");
		return;
	}
	doctor_found(doctor, DOCTOR_OK, "%s, %s and %u GPU%s can be opened", CONTROL_NODE,
		     MEMORY_NODE, count - closed, count - closed == 1 ? "" : "s");
}

/* -- the driver -------------------------------------------------------------------------------- */

bool doctor_find_library(const char *name, char ret_path[PATH_MAX], const char **ret_why)
{
	void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
	const struct link_map *map;
	bool found;

	if (!library) {
		*ret_why = dlerror();
		return false;
	}
	found = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && realpath(map->l_name, ret_path);
	if (!found)
		ret_path[0] = '\0';
	dlclose(library);
	return true;
}

/* "580.159.03" of a name or a line that has such a number with a dot in it, from `at` on. */
static bool find_version(const char *at, char *buf, size_t len)
{
	for (; *at; at++) {
		size_t digits = strspn(at, "0123456789"), all = strspn(at, "0123456789.");

		if (digits >= 3 && at[digits] == '.' && isdigit((unsigned char)at[digits + 1])) {
			snprintf(buf, len, "%.*s", (int)all, at);
			return true;
		}
		if (digits)
			at += all - 1;
	}
	return false;
}

/* The module's version against that of the library, as its file's name has it. */
static bool versions_agree(const char *path, char *kernel, char *library, size_t len)
{
	const char *name = strrchr(path, '/');
	char line[256];

	return !first_line(MODULE_VERSION, line, sizeof(line)) ||
	       !find_version(line, kernel, len) || !name || !find_version(name, library, len) ||
	       strcmp(kernel, library) == 0;
}

static bool has_libraries(struct doctor *doctor, char nvml[PATH_MAX])
{
	static const char cure[] =
		"Install the driver's libraries, of the kernel module's version; in a container, "
		"let its runtime bring them (NVIDIA_DRIVER_CAPABILITIES=compute,utility)";
	char cuda[PATH_MAX];
	const char *why = "";

	if (!doctor_find_library("libnvidia-ml.so.1", nvml, &why)) {
		doctor_found(doctor, DOCTOR_FAIL, "NVML is not found: %s", why);
		doctor_advise(doctor, "%s", cure);
		return false;
	}
	if (!doctor_find_library("libcuda.so.1", cuda, &why)) {
		doctor_found(doctor, DOCTOR_FAIL, "CUDA's driver is not found: %s", why);
		doctor_advise(doctor, "%s", cure);
		return false;
	}
	return true;
}

static void say_version(struct doctor *doctor)
{
	const struct gpus_driver *driver = &doctor->driver;
	char cuda[40] = "";

	if (driver->cuda)
		snprintf(cuda, sizeof(cuda), ", CUDA %d.%d", driver->cuda / 1000,
			 driver->cuda % 1000 / 10);
	if (driver->cuda && driver->cuda < CUDA_OLDEST) {
		doctor_found(doctor, DOCTOR_WARN, "driver %s%s, older than any that vgpu knows",
			     driver->version, cuda);
		doctor_advise(doctor, "Update it, to one for CUDA 11 at least");
	} else if (driver->cuda >= CUDA_OF_TABLES + 10) {
		doctor_found(doctor, DOCTOR_NOTE,
			     "driver %s%s, newer than the CUDA %d.%d that vgpu's tables are of",
			     driver->version, cuda, CUDA_OF_TABLES / 1000,
			     CUDA_OF_TABLES % 1000 / 10);
		doctor_advise(doctor, "Know that functions which are new in it are the driver's "
				      "own: what a program allocates by them is counted only "
				      "as far as NVML shows it");
	} else {
		doctor_found(doctor, DOCTOR_OK, "driver %s%s, %u GPU%s", driver->version, cuda,
			     doctor->gpus.count, doctor->gpus.count == 1 ? "" : "s");
	}
}

static void check_driver(struct doctor *doctor)
{
	char nvml[PATH_MAX], kernel[64], library[64];

	if (!has_libraries(doctor, nvml))
		return;
	if (!versions_agree(nvml, kernel, library, sizeof(kernel))) {
		doctor_found(doctor, DOCTOR_FAIL, "the kernel has driver %s, and %s is of %s",
			     kernel, nvml, library);
		doctor_advise(doctor, "Reboot, or load the module again, after an update of the "
				      "driver; restart the containers that ran meanwhile");
		return;
	}
	if (doctor->has_gpus) {
		say_version(doctor);
		return;
	}
	doctor_found(doctor, DOCTOR_FAIL, "%s", doctor->gpus_fault.text);
	doctor_advise(doctor, "Until it does, no slice can be made here");
}

/* -- how GPUs are set -------------------------------------------------------------------------- */

static void check_compute_mode(struct doctor *doctor)
{
	bool said = false;

	for (unsigned i = 0; doctor->has_gpus && i < doctor->gpus.count; i++) {
		int mode = doctor->driver.modes[i].compute;

		if (mode == NVML_COMPUTEMODE_PROHIBITED) {
			doctor_found(doctor, DOCTOR_FAIL, "GPU %u lets no process compute", i);
			doctor_advise(doctor, "Run nvidia-smi -i %u -c DEFAULT, as root", i);
		} else if (mode == NVML_COMPUTEMODE_EXCLUSIVE_PROCESS ||
			   mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD) {
			doctor_found(doctor, DOCTOR_WARN,
				     "GPU %u is one process's at a time, so that slices of it "
				     "cannot run alongside each other",
				     i);
			doctor_advise(doctor, "Run nvidia-smi -i %u -c DEFAULT, as root", i);
		} else {
			continue;
		}
		said = true;
	}
	if (!said && doctor->has_gpus)
		doctor_found(doctor, DOCTOR_OK, "any number of processes may use a GPU");
}

static void check_mig(struct doctor *doctor)
{
	bool said = false;

	for (unsigned i = 0; doctor->has_gpus && i < doctor->gpus.count; i++) {
		const struct gpu_modes *modes = &doctor->driver.modes[i];
		char list[GPUS_INSTANCES_MAX * (VGPU_UUID_LEN + 2)] = "";
		size_t at = 0;

		if (modes->mig != 1)
			continue;
		said = true;
		for (unsigned j = 0; j < modes->instance_count; j++)
			at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", j ? ", " : "",
					       modes->instance[j]);
		if (!modes->instance_count) {
			doctor_found(doctor, DOCTOR_WARN,
				     "GPU %u is in MIG mode, and has no instance here", i);
			doctor_advise(doctor,
				      "Make one (nvidia-smi mig -i %u -cgi ... -C), or switch MIG "
				      "off: CUDA does not see this GPU",
				      i);
			continue;
		}
		doctor_found(doctor, DOCTOR_NOTE, "GPU %u is in MIG mode, with %s", i, list);
		doctor_advise(doctor, "Name a policy's files by these UUIDs, not by the GPU's: to "
				      "CUDA each instance is a device of its own");
	}
	if (!said && doctor->has_gpus)
		doctor_found(doctor, DOCTOR_OK, "no GPU is in MIG mode");
}

static void check_persistence(struct doctor *doctor)
{
	unsigned off = 0, first = 0;

	for (unsigned i = doctor->gpus.count; doctor->has_gpus && i-- > 0;)
		if (doctor->driver.modes[i].persistence == 0) {
			off++;
			first = i;
		}
	if (off) {
		doctor_found(doctor, DOCTOR_NOTE,
			     "persistence mode is off on GPU %u%s: the first program after a pause "
			     "waits until the GPU is started, some seconds",
			     first, off > 1 ? " and others" : "");
		doctor_advise(doctor,
			      "Start nvidia-persistenced, or run nvidia-smi -pm 1, as root");
	} else if (doctor->has_gpus) {
		doctor_found(doctor, DOCTOR_OK, "GPUs stay started when nobody uses them");
	}
}

/* -- memory of the host ------------------------------------------------------------------------ */

/*
 * Reads parameters of the driver's module. A question to CUDA
 * (CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS) would start CUDA. The parameter for HMM is Y if
 * the module was built without HMM. The parameter for ATS does not say whether the machine has
 * ATS, as Grace does.
 */
static void check_host_memory(struct doctor *doctor)
{
	char hmm[8] = "Y", ats[8] = "0";
	struct utsname name;
	bool has_ats = first_line(ATS_PARAMETER, ats, sizeof(ats)) && ats[0] != '0' &&
		       uname(&name) == 0 && strcmp(name.machine, "x86_64") != 0;

	first_line(HMM_PARAMETER, hmm, sizeof(hmm));
	if (hmm[0] != 'N' && !has_ats) {
		doctor_found(doctor, DOCTOR_OK, "the driver moves no plain memory of the host");
		return;
	}
	doctor_found(doctor, DOCTOR_NOTE,
		     "the driver may move plain memory of the host to GPUs (%s)",
		     hmm[0] == 'N' ? "HMM" : "ATS");
	doctor_advise(
		doctor,
		"Know that a GPU's memory which holds such pages is in no slice's figure, and "
		"that the driver takes it back when others allocate%s",
		hmm[0] == 'N' ? "; the module's option uvm_disable_hmm=1 switches it off" : "");
}

/* -- MPS --------------------------------------------------------------------------------------- */

static bool is_mps(const char *pid)
{
	char path[300], name[64];

	if (!isdigit((unsigned char)pid[0]))
		return false;
	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	return first_line(path, name, sizeof(name)) && strcmp(name, MPS_PROCESS) == 0;
}

static bool mps_runs(void)
{
	DIR *dir = opendir("/proc");
	const struct dirent *entry;
	bool found = false;

	while (dir && !found && (entry = readdir(dir)))
		found = is_mps(entry->d_name);
	if (dir)
		closedir(dir);
	return found;
}

/* Whether the directory has the pipe by which clients of MPS find its daemon. The daemon itself
 * may be in another pid namespace. */
static bool has_mps_pipe(const char *dir)
{
	char path[PATH_MAX];
	struct stat st;

	return snprintf(path, sizeof(path), "%s/control", dir) < (int)sizeof(path) &&
	       stat(path, &st) == 0;
}

static void check_mps(struct doctor *doctor)
{
	const char *named = env_get(MPS_VARIABLE), *dir = named ? named : MPS_DEFAULT;
	bool runs = mps_runs(), has_pipe = has_mps_pipe(dir);

	if (has_pipe) {
		doctor_found(doctor, DOCTOR_WARN, "MPS is in use here, by the pipes in %s%s", dir,
			     runs ? "" : ", though no daemon of it is seen");
		doctor_advise(
			doctor,
			"Do not count on quotas of GPU time: under MPS kernels of several "
			"processes run at once, and each is charged all of that time; vgpu was "
			"not tried with MPS. Set " MPS_VARIABLE
			" to an empty directory to do without it");
	} else if (runs) {
		doctor_found(doctor, DOCTOR_NOTE,
			     "a daemon of MPS runs, and its pipes are not in %s", dir);
		doctor_advise(doctor, "Do not set " MPS_VARIABLE
				      " to its directory for programs in slices: vgpu was not "
				      "tried with MPS");
	} else {
		doctor_found(doctor, DOCTOR_OK, "MPS does not run");
	}
}

/* -- vgpud ------------------------------------------------------------------------------------- */

static bool vgpud_is_installed(void)
{
	static const char *const places[] = {"/etc", "/usr/local/lib", "/usr/lib", "/lib"};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		char path[64];

		snprintf(path, sizeof(path), "%s/systemd/system/" VGPUD_UNIT, places[i]);
		if (access(path, F_OK) == 0)
			return true;
	}
	return false;
}

/* systemd has the link while the unit runs. */
static void check_vgpud(struct doctor *doctor)
{
	struct stat st;

	if (lstat("/run/systemd/units/invocation:" VGPUD_UNIT, &st) == 0) {
		doctor_found(doctor, DOCTOR_OK, "vgpud runs");
	} else if (vgpud_is_installed()) {
		doctor_found(doctor, DOCTOR_NOTE, "vgpud is installed, and does not run");
		doctor_advise(doctor,
			      "Start it by systemctl enable --now vgpud for metrics of this "
			      "machine, or see systemctl status vgpud; slices do not need "
			      "it");
	} else {
		doctor_found(doctor, DOCTOR_OK, "vgpud is not installed, and no slice needs it");
	}
}

const struct doctor_check doctor_machine[] = {
	{"kernel", check_kernel},
	{"libc", check_libc},
	{"devices", check_devices},
	{"driver", check_driver},
	{"functions", doctor_check_functions},
	{"compute-mode", check_compute_mode},
	{"mig", check_mig},
	{"persistence", check_persistence},
	{"host-memory", check_host_memory},
	{"mps", check_mps},
	{"vgpud", check_vgpud},
	{NULL, NULL},
};
