/*
 * The kernel has no list of the processes in a namespace. So all of /proc is read, at most once in
 * a look, and only if the caller asks for a process of another pid namespace. A process's namespace
 * is the inode of /proc/PID/ns/pid, which a user may read for the user's own processes, and root
 * for nearly all. Its pid there is the last number of "NSpid:" in /proc/PID/status. An entry stays
 * valid while the process of that pid is in that namespace.
 */
#include "procs.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "escape.h"

#define INITIAL_PID_NAMESPACE 0xeffffffcu /* inode of the host's pid namespace, by Linux's ABI */
#define AGAIN_NS              (10 * NS_PER_S) /* from one search of /proc to the next */

struct proc {
	uint64_t pid_namespace;
	int pid, here;
};

struct procs {
	uint64_t own;     /* our pid namespace; 0: /proc is of another one */
	bool may_look;    /* /proc may be searched in this look */
	bool sees_all;    /* /proc showed all processes at look_ns */
	uint64_t look_ns; /* time of the last search; 0: never */
	unsigned count;   /* processes of other namespaces, by namespace and pid */
	struct proc *proc;
};

static int by_namespace(const void *left, const void *right)
{
	const struct proc *a = left, *b = right;

	if (a->pid_namespace != b->pid_namespace)
		return a->pid_namespace < b->pid_namespace ? -1 : 1;
	return (a->pid > b->pid) - (a->pid < b->pid);
}

/* -- /proc ------------------------------------------------------------------------------------- */

/* Reads a small file, with a NUL at its end. Returns its length, or -1. */
static long read_file(int pid, const char *name, char *buf, size_t len)
{
	char path[48];
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	got = read(fd, buf, len - 1);
	close(fd);
	buf[got > 0 ? got : 0] = '\0';
	return got;
}

/* The inode of the process's pid namespace; 0: this user may not read it. */
static uint64_t namespace_of(int pid)
{
	char path[48];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid);
	return stat(path, &st) == 0 ? st.st_ino : 0;
}

/* The process's pid in its own pid namespace, and in how many namespaces it has a pid, from ours
 * down. 0: the process is gone, or the kernel does not say (before Linux 4.1). */
static int own_pid_of(int pid, unsigned *ret_depth)
{
	char status[4096], *line, *at;
	int own = 0;

	*ret_depth = 0;
	if (read_file(pid, "status", status, sizeof(status)) <= 0)
		return 0;
	line = strstr(status, "\nNSpid:");
	if (!line)
		return 0;
	line += strlen("\nNSpid:");
	line[strcspn(line, "\n")] = '\0';
	for (; (at = strchr(line, '\t')); line = at + 1, ++*ret_depth)
		own = (int)strtol(at + 1, NULL, 10);
	return own;
}

static bool is_there(int pid)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d", pid);
	return access(path, F_OK) == 0;
}

/* -- looking ----------------------------------------------------------------------------------- */

struct procs *procs_new(void)
{
	struct procs *procs = calloc(1, sizeof(*procs));
	char self[16] = "", own[16];

	if (!procs)
		return NULL;
	snprintf(own, sizeof(own), "%d", getpid());
	if (readlink("/proc/self", self, sizeof(self) - 1) > 0 && strcmp(self, own) == 0)
		procs->own = namespace_of(getpid());
	return procs;
}

void procs_free(struct procs *procs)
{
	if (procs)
		free(procs->proc);
	free(procs);
}

void procs_begin(struct procs *procs)
{
	procs->may_look = !procs->look_ns || clock_now_ns() - procs->look_ns > AGAIN_NS;
}

/* Adds a process of another namespace. If its namespace cannot be read, a single pid shows that it
 * is in ours. */
static void add(struct procs *procs, int here)
{
	struct proc found = {.pid_namespace = namespace_of(here), .here = here};
	struct proc *more;
	unsigned depth;

	if (found.pid_namespace == procs->own)
		return;
	found.pid = own_pid_of(here, &depth);
	if (!found.pid_namespace) {
		procs->sees_all = procs->sees_all && (depth == 1 || !is_there(here));
		return;
	}
	more = found.pid ? realloc(procs->proc, (procs->count + 1) * sizeof(*more)) : NULL;
	if (!more)
		return;
	procs->proc = more;
	procs->proc[procs->count++] = found;
}

static void look(struct procs *procs)
{
	DIR *dir = opendir("/proc");
	const struct dirent *entry;

	procs->count = 0;
	procs->may_look = false;
	procs->look_ns = clock_now_ns();
	procs->sees_all = dir && procs_is_host(procs) && geteuid() == 0;
	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
			add(procs, (int)strtol(entry->d_name, NULL, 10));
	if (dir)
		closedir(dir);
	if (procs->count > 0)
		qsort(procs->proc, procs->count, sizeof(*procs->proc), by_namespace);
}

static int find(const struct procs *procs, uint64_t pid_namespace, int pid)
{
	struct proc wanted = {.pid_namespace = pid_namespace, .pid = pid};
	const struct proc *found = procs->count > 0 ? bsearch(&wanted, procs->proc, procs->count,
							      sizeof(*procs->proc), by_namespace)
						    : NULL;

	return found && namespace_of(found->here) == pid_namespace ? found->here : 0;
}

int procs_find(struct procs *procs, uint64_t pid_namespace, int pid)
{
	int here;

	if (pid <= 0 || !pid_namespace || !procs->own)
		return 0;
	if (pid_namespace == procs->own)
		return pid;
	here = find(procs, pid_namespace, pid);
	if (!here && procs->may_look) {
		look(procs);
		here = find(procs, pid_namespace, pid);
	}
	return here;
}

bool procs_sees_all(struct procs *procs)
{
	if (procs->may_look)
		look(procs);
	return procs->sees_all;
}

bool procs_is_host(const struct procs *procs)
{
	return procs->own == INITIAL_PID_NAMESPACE;
}

/* -- commands ---------------------------------------------------------------------------------- */

void procs_command(int here, char *buf, size_t len)
{
	char raw[512], name[128];
	long got = here > 0 ? read_file(here, "cmdline", raw, sizeof(raw)) : -1;

	*buf = '\0';
	while (got > 0 && raw[got - 1] == '\0')
		got--;
	for (long i = 0; i < got; i++)
		if (!raw[i])
			raw[i] = ' ';
	if (got > 0)
		escape(raw, buf, len);
	if (got > 0 || here <= 0)
		return;
	got = read_file(here, "comm", raw, sizeof(raw));
	if (got < 2)
		return;
	raw[got - 1] = '\0'; /* its line feed */
	snprintf(buf, len, "[%s]", escape(raw, name, sizeof(name)));
}
