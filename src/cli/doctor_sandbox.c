/*
 * Checks the surroundings of this process: its namespaces, and the system calls of libvgpu.so.
 * Each of these calls is tried once, by the library's own functions (base/sys.c), on a file
 * without a name. docs/surroundings.md says what happens to a slice if a call is denied.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "doctor.h"
#include "file.h"
#include "sys.h"
#include "usage.h"

/* The inodes that the kernel gives the machine's first namespaces. */
#define FIRST_PID_NAMESPACE  0xeffffffcu
#define FIRST_USER_NAMESPACE 0xeffffffdu

bool doctor_in_namespace(const char *kind)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/self/ns/%s", kind);
	return stat(path, &st) == 0 &&
	       st.st_ino != (strcmp(kind, "pid") == 0 ? FIRST_PID_NAMESPACE : FIRST_USER_NAMESPACE);
}

/* Whether /proc is of our pid namespace: 1, 0, or -1 when there is none. */
static int has_proc(void)
{
	char own[24], seen[24];
	ssize_t len = readlink("/proc/self", seen, sizeof(seen) - 1);

	if (len < 0)
		return -1;
	seen[len] = '\0';
	snprintf(own, sizeof(own), "%d", (int)getpid());
	return strcmp(own, seen) == 0;
}

static void check_namespaces(struct doctor *doctor)
{
	int proc = has_proc();

	if (proc < 0) {
		doctor_found(doctor, DOCTOR_WARN, "/proc is not mounted");
		doctor_advise(doctor, "Mount it: what a killed process held counts for longer "
				      "without, and users of a deleted region are not seen");
	} else if (proc == 0) {
		doctor_found(doctor, DOCTOR_WARN, "/proc is of another pid namespace");
		doctor_advise(doctor, "Mount one of this one's over it: what a killed process held "
				      "counts for longer so");
	} else {
		doctor_found(doctor, DOCTOR_OK, "pids are %s, users are %s",
			     doctor_in_namespace("pid") ? "of a namespace" : "the machine's",
			     doctor_in_namespace("user") ? "of a namespace" : "the machine's");
	}
}

/* -- pids of NVML ------------------------------------------------------------------------------ */

/* How many processes NVML lists; a pid of which there is no process here goes to *ret_foreign, and
 * *ret_known is whether any of them is here. */
static unsigned count_listed(const struct usage *usage, unsigned *ret_foreign, bool *ret_known)
{
	unsigned count = 0;

	*ret_known = false;
	for (unsigned i = 0; i < usage->gpu_count; i++)
		for (unsigned j = 0; j < usage->gpu[i].process_count; j++) {
			unsigned pid = usage->gpu[i].process[j].pid;

			count++;
			if (pid && (kill((pid_t)pid, 0) == 0 || errno != ESRCH))
				*ret_known = true;
			else
				*ret_foreign = pid;
		}
	return count;
}

/* The library compares its accounts with what NVML lists under its own pid. */
static void check_nvml_pids(struct doctor *doctor)
{
	struct fault fault = {""};
	struct usage_source *source = doctor->has_gpus ? usage_open(&fault) : NULL;
	unsigned count, foreign = 0;
	struct usage usage;
	bool known;

	if (!source)
		return;
	usage_take(source, &usage);
	count = count_listed(&usage, &foreign, &known);
	usage_free(&usage);
	usage_close(source);
	if (!count) {
		doctor_found(doctor, DOCTOR_OK, "NVML lists no process, so its pids tell nothing");
	} else if (known) {
		doctor_found(doctor, DOCTOR_OK, "NVML's pids are of this pid namespace");
	} else {
		doctor_found(doctor, DOCTOR_WARN,
			     "NVML lists processes by pids that are none here, as %u", foreign);
		doctor_advise(doctor, "Run in the host's pid namespace, or update the driver, if a "
				      "program in a slice says that NVML shows no memory of it: "
				      "what the driver takes of itself, as for code at its first "
				      "use, is then not limited");
	}
}

/* -- system calls ------------------------------------------------------------------------------ */

/* A call that libvgpu.so makes: 0, or a negative errno. */
static int try_lock(int fd)
{
	return sys_lock_byte(fd, 0);
}

static int try_query(int fd)
{
	int error = sys_byte_is_locked(fd, 0);

	return error < 0 ? error : 0;
}

static int try_stat(int fd)
{
	struct stat st;

	return sys_fstat(fd, &st);
}

static int try_mapping(int fd)
{
	size_t len = (size_t)sysconf(_SC_PAGESIZE);
	void *at;
	int error = sys_ftruncate(fd, len);

	if (!error)
		error = sys_map_shared(fd, len, true, &at);
	if (!error)
		sys_unmap(at, len);
	return error;
}

static int try_futex(int fd)
{
	uint32_t word = 0;
	int error = sys_futex_wait(&word, 1, 0); /* returns at once */

	(void)fd;
	return error == -EAGAIN ? 0 : error;
}

static const struct attempt {
	int (*try)(int fd);
	const char *what;
	enum doctor_verdict without;
	const char *then;
} attempts[] = {
	{try_lock, "fcntl's F_OFD_SETLK", DOCTOR_FAIL, "CUDA is refused in every slice"},
	{try_query, "fcntl's F_OFD_GETLK", DOCTOR_WARN,
	 "what processes that were killed held counts as if they lived"},
	{try_stat, "fstat", DOCTOR_FAIL, "CUDA is refused in every slice"},
	{try_mapping, "mmap of a shared file", DOCTOR_FAIL, "CUDA is refused in every slice"},
	{try_futex, "futex", DOCTOR_WARN, "waiting for another process costs CPU time"},
};

/* Whether a filter is on. */
static bool is_filtered(void)
{
	char text[4096];

	file_read("/proc/self/status", text, sizeof(text));
	return strstr(text, "\nSeccomp:\t2") != NULL;
}

static void check_system_calls(struct doctor *doctor)
{
	int fd = memfd_create("vgpu doctor", MFD_CLOEXEC);
	const char *filter = is_filtered() ? "a seccomp filter is on" : "no seccomp filter is on";
	bool all = true;

	if (fd < 0)
		fd = open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	if (fd < 0) {
		doctor_found(doctor, DOCTOR_NOTE, "there is no file to try them on; %s", filter);
		doctor_advise(doctor, "Let this run where memfd_create works, or /tmp can be "
				      "written");
		return;
	}
	for (size_t i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++) {
		const struct attempt *attempt = &attempts[i];
		int error = attempt->try(fd);

		if (!error)
			continue;
		all = false;
		doctor_found(doctor, attempt->without, "%s does not work (%s); %s", attempt->what,
			     strerror(-error), filter);
		doctor_advise(doctor,
			      "Allow it in the sandbox's filter, or use a kernel that has "
			      "it: without, %s",
			      attempt->then);
	}
	close(fd);
	if (all)
		doctor_found(doctor, DOCTOR_OK, "all that are needed work; %s", filter);
}

const struct doctor_check doctor_sandbox[] = {
	{"namespaces", check_namespaces},
	{"nvml-pids", check_nvml_pids},
	{"system-calls", check_system_calls},
	{NULL, NULL},
};
