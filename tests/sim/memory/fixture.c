#include "fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "departure.h"
#include "onlooker.h"
#include "region.h"
#include "region_long_dead.h"

#define CACHE "CUDA_DEVICE_MEMORY_SHARED_CACHE"

char scene_dir[64];

/* -- scenes ----------------------------------------------------------------------------------- */

void env_set(const char *name, const char *value)
{
	CHECK((value ? setenv(name, value, 1) : unsetenv(name)) == 0);
}

void limit_set(uint64_t bytes)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", text);
}

const char *scene_path(const char *name)
{
	static char paths[8][256];
	static unsigned turn;
	char *path = paths[turn++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", scene_dir, name);
	return path;
}

void scene_write(const char *name, const char *text)
{
	FILE *file = fopen(scene_path(name), "w");

	CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

void policy_write(const char *entry, const char *text)
{
	char name[128];

	mkdir(scene_path("policy"), 0755);
	snprintf(name, sizeof(name), "policy/%s", entry);
	scene_write(name, text);
	env_set("VGPU_POLICY", scene_path("policy"));
}

const char *gpu_uuid(unsigned gpu)
{
	static char uuids[VGPU_DEVICES_MAX][VGPU_UUID_LEN];

	snprintf(uuids[gpu], VGPU_UUID_LEN, "GPU-51300000-0000-4000-8000-%012x", gpu);
	return uuids[gpu];
}

static void remove_tree(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	char name[512];

	while (dir && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		remove_tree(name);
	}
	if (dir)
		closedir(dir);
	remove(path);
}

static void set_scene(void)
{
	static const char *const names[] = {
		"CUDA_DEVICE_SM_LIMIT",  "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
		"VGPU_POLICY",           "VGPU_SIM_GPUS",        "VGPU_SIM_CONTEXT_MIB",
		"VGPU_SIM_FAULTS",       "VGPU_SIM_PARK",        "VGPU_SIM_NVML_PIDS",
		"CUDA_TASK_PRIORITY",    "VGPU_SIM_MISSING",     "CUDA_DEVICE_MEMORY_LIMIT",
		"CUDA_OVERSUBSCRIBE",    "VGPU_SIM_NVML_MIG",    "VGPU_SIM_NVML_LISTS",
		"VGPU_SIM_NVML_FIGURES", "VGPU_SIM_NVML_MANY",   "VGPU_SIM_MODULE_MIB",
		"VGPU_SIM_MODULE_LAZY",  "VGPU_SIM_IPC_COUNTS",  "VGPU_TRACE"};
	char limit[64];

	strcpy(scene_dir, "/tmp/vgpu-memory-XXXXXX");
	CHECK(mkdtemp(scene_dir));
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		env_set(names[i], NULL);
	for (unsigned i = 0; i < VGPU_DEVICES_MAX; i++) {
		snprintf(limit, sizeof(limit), "CUDA_DEVICE_MEMORY_LIMIT_%u", i);
		env_set(limit, NULL);
	}
	env_set("LIBCUDA_LOG_LEVEL", "0"); /* refusals are what is tested, not news */
	env_set("SCENE_DIR", scene_dir);
	env_set("VGPU_SIM_STATE", scene_path("machine"));
	env_set(CACHE, scene_path("slice.cache"));
	env_set("VGPU_SOCKET", scene_path("vgpud.sock")); /* there is no vgpud */
	env_set("VGPU_TURNS", scene_path("turns"));       /* a scene that wants some makes it */
}

static void remove_scene(void)
{
	remove_tree(scene_dir);
}

static void enter_scene(void)
{
	strcpy(scene_dir, getenv("SCENE_DIR"));
}

const struct harness_fixture scene_fixture = {set_scene, remove_scene, enter_scene};

/* -- other processes -------------------------------------------------------------------------- */

struct member member_start(void (*body)(int wire))
{
	struct member member;
	int wires[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wires) == 0);
	member.departure = departure_prepare();
	fflush(NULL);
	member.pid = fork();
	CHECK(member.pid >= 0);
	if (member.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		departure_begin(member.departure);
		close(wires[0]);
		body(wires[1]);
		fflush(NULL);
		_exit(0);
	}
	close(wires[1]);
	member.wire = wires[0];
	return member;
}

void tell(int wire, uint64_t word)
{
	CHECK(write(wire, &word, sizeof(word)) == sizeof(word));
}

uint64_t hear(int wire)
{
	struct pollfd ready = {.fd = wire, .events = POLLIN};
	uint64_t word;

	CHECK(poll(&ready, 1, WAIT_S * 1000) == 1);
	CHECK(read(wire, &word, sizeof(word)) == sizeof(word));
	return word;
}

struct member member_begin(void (*body)(int wire))
{
	struct member member = member_start(body);

	hear(member.wire);
	return member;
}

uint64_t say_ready(int wire)
{
	tell(wire, 1);
	return hear(wire);
}

uint64_t member_ask(const struct member *member, uint64_t word)
{
	tell(member->wire, word);
	return hear(member->wire);
}

void member_finish(struct member *member)
{
	tell(member->wire, 0);
	member_end(member);
}

int member_wait(struct member *member)
{
	int status = -1;

	while (waitpid(member->pid, &status, 0) < 0 && errno == EINTR)
		;
	departure_wait(member->departure);
	close(member->wire);
	return status;
}

void member_end(struct member *member)
{
	CHECK_EQUAL(member_wait(member), 0);
}

void member_kill(struct member *member)
{
	CHECK(kill(member->pid, SIGKILL) == 0);
	CHECK_EQUAL(member_wait(member), SIGKILL);
}

void expect_status(pid_t child, int status)
{
	int got = -1;

	CHECK(waitpid(child, &got, 0) == child);
	CHECK_EQUAL(got, status);
}

static void slurp(const char *name, char *text, size_t len)
{
	int fd = open(scene_path(name), O_RDONLY | O_CLOEXEC);
	ssize_t got = read(fd, text, len - 1);

	CHECK(fd >= 0 && got >= 0);
	text[got] = '\0';
	close(fd);
}

struct said member_listen(void (*body)(void))
{
	int departure = departure_prepare();
	struct said said;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		int out = open(scene_path("out"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
		int err = open(scene_path("err"), O_WRONLY | O_CREAT | O_TRUNC, 0600);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		departure_begin(departure);
		if (dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
			_exit(2);
		body();
		fflush(NULL);
		_exit(0);
	}
	CHECK(waitpid(pid, &said.status, 0) == pid);
	departure_wait(departure);
	slurp("out", said.out, sizeof(said.out));
	slurp("err", said.err, sizeof(said.err));
	return said;
}

unsigned lines_in(const char *text)
{
	unsigned count = 0;

	for (; *text; text++)
		count += *text == '\n';
	return count;
}

uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void sleep_ms(unsigned ms)
{
	usleep(ms * 1000);
}

/* -- threads ---------------------------------------------------------------------------------- */

struct threads threads_start(unsigned count, void *(*body)(void *number))
{
	struct threads threads = {.count = count};

	CHECK(count <= THREADS_MAX);
	for (uintptr_t i = 0; i < count; i++)
		CHECK(pthread_create(&threads.thread[i], NULL, body, (void *)i) == 0);
	return threads;
}

void threads_join(struct threads threads)
{
	for (unsigned i = 0; i < threads.count; i++)
		CHECK(pthread_join(threads.thread[i], NULL) == 0);
}

/* -- onlookers -------------------------------------------------------------------------------- */

struct onlooker {
	pid_t owner; /* whose child it is: a forked process starts one of its own */
	int wire;
};

static struct onlooker without_library, with_library;

#define WIRE_THERE 3

/* The environment of an onlooker: no script for the simulated driver, and maybe no library. */
static char **onlooker_environment(bool preloaded)
{
	static const char *const dropped[] = {
		"VGPU_SIM_NVML_PIDS=", "VGPU_SIM_FAULTS=", "LD_PRELOAD="};
	static char *kept[1024];
	size_t count = 0;

	for (char **entry = environ; *entry && count < 1023; entry++) {
		bool drop = false;

		for (unsigned i = 0; i < (preloaded ? 2 : 3); i++)
			drop |= !strncmp(*entry, dropped[i], strlen(dropped[i]));
		if (!drop)
			kept[count++] = *entry;
	}
	kept[count] = NULL;
	return kept;
}

static int onlooker_wire(struct onlooker *onlooker, bool preloaded)
{
	char *arguments[] = {"onlooker", NULL};
	posix_spawn_file_actions_t actions;
	int wires[2];
	pid_t pid;

	if (onlooker->owner == getpid())
		return onlooker->wire;
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wires) == 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, wires[1], WIRE_THERE);
	CHECK(posix_spawn(&pid, getenv("ONLOOKER"), &actions, NULL, arguments,
			  onlooker_environment(preloaded)) == 0);
	posix_spawn_file_actions_destroy(&actions);
	close(wires[1]);
	*onlooker = (struct onlooker){getpid(), wires[0]};
	return onlooker->wire;
}

static void ask(int wire, struct question question)
{
	CHECK(write(wire, &question, sizeof(question)) == sizeof(question));
}

static struct figures answered(int wire)
{
	struct pollfd ready = {.fd = wire, .events = POLLIN};
	struct answer answer;

	CHECK(poll(&ready, 1, WAIT_S * 1000) == 1);
	CHECK(read(wire, &answer, sizeof(answer)) == sizeof(answer));
	return (struct figures){answer.result, answer.total, answer.free, answer.used};
}

static struct figures asked_outside(struct question question)
{
	int wire = onlooker_wire(&without_library, false);
	struct figures figures;

	ask(wire, question);
	figures = answered(wire);
	CHECK_EQUAL(figures.result, 0);
	return figures;
}

uint64_t outside_used(unsigned gpu)
{
	return asked_outside((struct question){.kind = QUESTION_MEMORY, .gpu = gpu}).used;
}

uint64_t outside_of(unsigned gpu, pid_t pid)
{
	return asked_outside((struct question){.kind = QUESTION_PROCESS, .gpu = gpu, .pid = pid})
		.used;
}

void outside_peak_begin(unsigned gpu)
{
	outside_peak(gpu);
}

uint64_t outside_peak(unsigned gpu)
{
	return asked_outside((struct question){.kind = QUESTION_PEAK, .gpu = gpu}).used;
}

struct figures inside(unsigned gpu, int version)
{
	int wire = onlooker_wire(&with_library, true);

	ask(wire, (struct question){.kind = version == 2 ? QUESTION_MEMORY_V2 : QUESTION_MEMORY,
				    .gpu = gpu});
	return answered(wire);
}

/* -- the ledger ------------------------------------------------------------------------------- */

const struct vgpu_region_file *ledger(void)
{
	static const struct vgpu_region_file *file;
	void *addr;
	int fd;

	if (file)
		return file;
	fd = open(getenv(CACHE), O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	addr = mmap(NULL, sizeof(*file), PROT_READ, MAP_SHARED, fd, 0);
	CHECK(addr != MAP_FAILED);
	close(fd);
	file = addr;
	CHECK_EQUAL(file->hami.magic, VGPU_HAMI_MAGIC);
	CHECK(file->own.magic == VGPU_REGION_MAGIC);
	return file;
}

unsigned ledger_index(unsigned gpu)
{
	unsigned count = (unsigned)ledger()->hami.device_count;

	for (unsigned i = 0; i < count; i++)
		if (!strcmp(ledger()->hami.uuids[i], gpu_uuid(gpu)))
			return i;
	check_failed_saying(__FILE__, __LINE__, "the region has no GPU %u", gpu);
}

int ledger_slot(pid_t pid)
{
	for (int i = 0; i < VGPU_SLOTS_MAX; i++)
		if (ledger()->hami.slots[i].status && ledger()->hami.slots[i].pid == pid)
			return i;
	return -1;
}

struct vgpu_hami_usage ledger_of(pid_t pid, unsigned gpu)
{
	int slot = ledger_slot(pid);

	CHECK(slot >= 0);
	return ledger()->hami.slots[slot].used[ledger_index(gpu)];
}

struct vgpu_hami_usage ledger_own(unsigned gpu)
{
	return ledger_of(getpid(), gpu);
}

uint64_t ledger_used(unsigned gpu)
{
	return __atomic_load_n(&ledger()->own.device[ledger_index(gpu)].used, __ATOMIC_ACQUIRE);
}

uint64_t ledger_context_cost(unsigned gpu)
{
	return ledger()->own.device[ledger_index(gpu)].context_cost;
}

static void region_look(struct region *region)
{
	struct fault fault = {""};

	if (region_view(getenv(CACHE), region, &fault) != 0)
		check_failed(__FILE__, __LINE__, fault.text);
	assume_long_dead(region);
}

static void say_wrong(void *arg, const char *line)
{
	(void)arg;
	fprintf(stderr, "%s: the region: %s\n", harness_name, line);
}

unsigned ledger_reap(void)
{
	struct region region = REGION_CLOSED;
	unsigned living;

	region_look(&region);
	living = region_living(&region); /* first: who dies after that may not be reaped yet */
	CHECK(region_reap(&region) >= 0);
	CHECK_EQUAL(region_check(&region, say_wrong, NULL), 0);
	region_close(&region);
	return living;
}

bool ledger_slot_lives(unsigned slot)
{
	struct region region = REGION_CLOSED;
	bool lives;

	region_look(&region);
	lives = region_slot_alive(&region, slot);
	region_close(&region);
	return lives;
}
