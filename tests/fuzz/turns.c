/*
 * Fuzzes src/turn/ over a file into which a hostile slice writes what it likes, at any time.
 * Nothing may be read or written out of bounds, no call may take long, no answer may be other than
 * turn.h says, and no slice may wait for a turn for longer than the bound.
 *
 * How it works. Four processes of three slices have a file of turns open, each with an open file of
 * its own. Time is virtual. The input is steps, each a byte for its kind and what that kind takes
 * (what the input lacks is 0):
 *
 *     ask      process, time                  and submits if it may; or sleeps until then
 *     idle     process, time
 *     over     process, time
 *     pass     time (16 bits)                 nothing is called
 *     write    place, length, bytes           into the file as it is
 *     repeat   place, length, bytes           into each slice, or each seat
 *     leave    process                        which joins again at the next step
 *     set      process, weight, limit
 *
 * Until the hostile slice has written, the file is valid after each step (turn_file_is_valid).
 *
 * In the end, all processes but one are gone, and that one has to go within the bound, and then to
 * be alone within some seconds.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "input.h"
#include "sys.h"
#include "turn.h"

#define PROCESSES  4
#define MOST_STEPS 200
#define MOST_CALLS 3000 /* of the kernel, in one call of turn.h */
#define PATH       "/turns"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_sys_open(const char *path, int flags, unsigned mode);
int __wrap_sys_fstat(int fd, struct stat *ret_stat);
int __wrap_sys_stat(const char *path, struct stat *ret_stat);

static struct process {
	struct turn turn;
	struct turn_account account;
	bool is_joined;
	uint64_t busy_ns, waits_from;
	unsigned limit_pct;
} processes[PROCESSES];

static int memory = -1;
static struct vgpu_turns_file *mapped; /* the file, for the hostile slice */
static uint64_t now_ns;
static unsigned calls;
static bool is_damaged; /* the hostile slice has written */

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* -- the file, and the kernel ------------------------------------------------------------------ */

/* The file is a memfd, opened anew each time: so each process has an open file of its own. */
int __wrap_sys_open(const char *path, int flags, unsigned mode)
{
	char name[32];
	int fd;

	(void)mode;
	if (strcmp(path, PATH) != 0) {
		fd = open(path, flags | O_CLOEXEC);
		return fd < 0 ? -errno : fd;
	}
	snprintf(name, sizeof(name), "/proc/self/fd/%d", memory);
	fd = open(name, (flags & ~(O_CREAT | O_EXCL | O_NOFOLLOW)) | O_CLOEXEC);
	must(fd >= 0);
	return fd;
}

/* A memfd has no name, and a file without one has been deleted. */
int __wrap_sys_fstat(int fd, struct stat *ret_stat)
{
	if (fstat(fd, ret_stat) != 0)
		return -errno;
	ret_stat->st_nlink = 1;
	return 0;
}

int __wrap_sys_stat(const char *path, struct stat *ret_stat)
{
	must(strcmp(path, PATH) == 0);
	return __wrap_sys_fstat(memory, ret_stat);
}

static long ask_kernel(long number)
{
	must(number != SYS_nanosleep);
	must(++calls <= MOST_CALLS);
	return 0;
}

static void make_world(void)
{
	if (memory < 0) {
		memory = memfd_create("vgpu-fuzz", MFD_CLOEXEC);
		must(memory >= 0 && ftruncate(memory, sizeof(*mapped)) == 0);
		mapped = mmap(NULL, sizeof(*mapped), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
		must(mapped != MAP_FAILED);
	}
	sys_fault = NULL;
	memset(mapped, 0, sizeof(*mapped));
	memset(processes, 0, sizeof(processes));
	now_ns = 1000 * NS_PER_S;
	is_damaged = false;
}

/* -- processes --------------------------------------------------------------------------------- */

/* The first two are of one slice. A file that holds nonsense may not be had any more. */
static void join(struct process *process)
{
	unsigned index = (unsigned)(process - processes);
	struct turn_slice slice = {.key = 1 + index / 2 + index / 3,
				   .weight = 10 + 30 * index,
				   .limit_pct = index == 3 ? 40 : 100};
	struct fault fault = {""};

	slice.account = index == 1 ? &processes[0].account : &process->account;
	process->limit_pct = slice.limit_pct;
	process->busy_ns = process->waits_from = 0;
	sys_fault = NULL; /* to find a seat among the dead may take thousands of calls, once */
	process->is_joined = turn_join(&process->turn, PATH, &slice, &fault) == 0;
	must(process->is_joined || *fault.text);
	sys_fault = ask_kernel;
}

static void leave(struct process *process)
{
	turn_leave(&process->turn, now_ns);
	process->is_joined = false;
}

static void submit(struct process *process, uint64_t ns)
{
	process->busy_ns = (process->busy_ns > now_ns ? process->busy_ns : now_ns) + ns;
	turn_submitted(&process->turn, process->busy_ns, now_ns);
	process->waits_from = 0;
}

/* One question. Waits of a slice with a limit, or with work in flight, may be longer. */
static struct turn_answer ask(struct process *process, uint64_t kernel_ns)
{
	struct turn_answer answer = turn_ask(&process->turn, now_ns);

	if (answer.kind != TURN_WAIT) {
		must(answer.wait_ns == 0);
		submit(process, kernel_ns);
		return answer;
	}
	must(answer.wait_ns >= 1 && answer.wait_ns <= TURN_ASK_AGAIN_NS);
	return answer;
}

/* It asks until it may go, and sleeps in between as it is told. */
static void ask_until_it_goes(struct process *process)
{
	uint64_t from_ns = now_ns, most_ns = TURN_WAIT_MOST_NS + 4 * TURN_ASK_AGAIN_NS;
	struct turn_answer answer;

	if (process->busy_ns > now_ns)
		now_ns = from_ns = process->busy_ns;
	turn_idle(&process->turn, now_ns, now_ns);
	for (;;) {
		calls = 0;
		answer = ask(process, NS_PER_MS);
		if (answer.kind != TURN_WAIT)
			return;
		must(process->limit_pct < 100 || process < processes + 2 ||
		     now_ns - from_ns <= most_ns);
		if (now_ns - from_ns > most_ns)
			return;
		now_ns += answer.wait_ns;
	}
}

/* -- damage ------------------------------------------------------------------------------------ */

static void write_at(size_t place, const uint8_t *bytes, size_t len)
{
	if (place >= sizeof(*mapped))
		return;
	if (len > sizeof(*mapped) - place)
		len = sizeof(*mapped) - place;
	memcpy((char *)mapped + place, bytes, len);
}

static void damage(struct input *input, bool often)
{
	static const size_t parts[] = {offsetof(struct vgpu_turns_file, header.turn),
				       offsetof(struct vgpu_turns_file, slice),
				       offsetof(struct vgpu_turns_file, slice[1]),
				       offsetof(struct vgpu_turns_file, slice[0].seats),
				       offsetof(struct vgpu_turns_file, seat)};
	size_t place = parts[take(input) % 5] + take_16(input) % 1024, len = 1 + take(input) % 64;
	uint8_t bytes[64];

	is_damaged = true;
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)take(input);
	write_at(place, bytes, len);
	for (unsigned i = 1; often && i < VGPU_TURNS_SEATS; i++)
		write_at(place + i * sizeof(struct vgpu_turns_seat), bytes,
			 len < sizeof(struct vgpu_turns_seat) ? len : 64);
}

/* -- steps ------------------------------------------------------------------------------------- */

static void step(struct input *input)
{
	unsigned kind = take(input) % 10;
	struct process *process = &processes[take(input) % PROCESSES];
	uint64_t ns = (uint64_t)take(input) * 100 * NS_PER_US;

	if (!process->is_joined)
		join(process);
	if (!process->is_joined)
		return;
	calls = 0;
	switch (kind) {
	case 0:
	case 1:
		now_ns += ns / 100;
		ask(process, ns);
		break;
	case 2:
		now_ns += ns / 100;
		process->busy_ns = now_ns;
		turn_idle(&process->turn, now_ns - ns / 200, now_ns);
		break;
	case 3:
		turn_over(&process->turn, now_ns, now_ns);
		break;
	case 4:
		now_ns += (uint64_t)take_16(input) * 10 * NS_PER_US;
		break;
	case 5:
		damage(input, false);
		break;
	case 6:
		damage(input, true);
		break;
	case 7:
		leave(process);
		break;
	case 8:
		turn_set(&process->turn, take(input), take(input));
		process->limit_pct = 1;
		break;
	case 9:
		ask_until_it_goes(process);
		break;
	}
}

static void check_file(void)
{
	sys_fault = NULL; /* each seat is a call */
	for (unsigned i = 0; i < PROCESSES && !is_damaged; i++)
		must(!processes[i].is_joined || turn_file_is_valid(&processes[i].turn.file));
	sys_fault = ask_kernel;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, size};
	struct process *last = &processes[2];

	make_world();
	for (unsigned i = 0; i < PROCESSES; i++)
		join(&processes[i]);
	for (unsigned i = 0; input.left > 0 && i < MOST_STEPS; i++) {
		step(&input);
		check_file();
	}
	for (unsigned i = 0; i < PROCESSES; i++)
		if (processes[i].is_joined && &processes[i] != last)
			turn_forget(&processes[i].turn); /* it is dead */
	if (!last->is_joined)
		join(last);
	if (!last->is_joined)
		return 0;
	ask_until_it_goes(last);
	leave(last);
	return 0;
}
