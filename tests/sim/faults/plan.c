/*
 * The one file that the library's build for tests has beside its own sources: it reads the plan
 * (plan.h) when the library is loaded, and sets the hooks that builds with VGPU_FAULTS have.
 *
 * Everything is written by the constructor, before there is a second thread, and constant
 * afterwards, but for the report's words, which are atomic. A forked child goes on with the same
 * plan and counts in the same report. Its system calls are libc's own, and so are not counted.
 */
#include "plan.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sys.h"

enum action { ACTION_NONE, ACTION_KILL, ACTION_STOP, ACTION_DELAY };

static struct plan_report unread; /* where nobody wants to know */
static struct plan_report *report = &unread;

static enum action action;
static enum region_step action_step;
static uint64_t action_at; /* the how-manieth time */

static uint64_t fault_at; /* the how-manieth system call; 0: none */
static long fault_error;

static const char *const step_names[] = {
#define NAME(name) #name,
	REGION_STEPS(NAME)
#undef NAME
};

static uint64_t count(uint64_t *word)
{
	return __atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
}

static void act(void)
{
	__atomic_store_n(&report->at_step, (uint64_t)getpid(), __ATOMIC_SEQ_CST);
	if (action == ACTION_KILL)
		kill(getpid(), SIGKILL);
	else if (action == ACTION_STOP)
		kill(getpid(), SIGSTOP);
	else
		usleep(PLAN_DELAY_MS * 1000);
}

static void come_to(enum region_step step)
{
	uint64_t times = count(&report->steps[step]);

	if (action != ACTION_NONE && step == action_step && times == action_at)
		act();
}

static long about_to_call(long number)
{
	uint64_t times = count(&report->calls);

	if (times <= PLAN_TRACE_CALLS)
		report->trace[times - 1] = (uint16_t)number;
	if (times != fault_at)
		return 0;
	__atomic_store_n(&report->failed, 1, __ATOMIC_SEQ_CST);
	return -fault_error;
}

/* -- the environment --------------------------------------------------------------------------- */

_Noreturn static void refuse(const char *name, const char *text)
{
	fprintf(stderr, "%s=%s makes no sense\n", name, text);
	_exit(PLAN_REFUSED);
}

static enum action action_named(const char *name)
{
	if (!strcmp(name, "kill"))
		return ACTION_KILL;
	if (!strcmp(name, "stop"))
		return ACTION_STOP;
	return !strcmp(name, "delay") ? ACTION_DELAY : ACTION_NONE;
}

static void read_step(const char *text)
{
	char does[8], step[32], rest;
	unsigned long long times = 1;
	unsigned i = 0;
	int fields = sscanf(text, "%7s %31s %llu %c", does, step, &times, &rest);

	if (fields != 2 && fields != 3)
		refuse("VGPU_TEST_STEP", text);
	while (i < REGION_STEP_COUNT && strcmp(step_names[i], step) != 0)
		i++;
	action = action_named(does);
	if (action == ACTION_NONE || i == REGION_STEP_COUNT || times == 0)
		refuse("VGPU_TEST_STEP", text);
	action_step = (enum region_step)i;
	action_at = times;
}

static void read_fault(const char *text)
{
	unsigned long long times;
	char rest;

	if (sscanf(text, "%llu %ld %c", &times, &fault_error, &rest) != 2 || times == 0 ||
	    fault_error <= 0 || fault_error > 4095)
		refuse("VGPU_TEST_SYSCALL", text);
	fault_at = times;
}

static void open_report(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *memory =
		fd < 0 ? MAP_FAILED
		       : mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		refuse("VGPU_TEST_REPORT", path);
	close(fd);
	report = memory;
}

__attribute__((constructor)) static void read_plan(void)
{
	const char *step = getenv("VGPU_TEST_STEP"), *fault = getenv("VGPU_TEST_SYSCALL");
	const char *path = getenv("VGPU_TEST_REPORT");

	if (path)
		open_report(path);
	if (step)
		read_step(step);
	if (fault)
		read_fault(fault);
	region_step_hook = come_to;
	sys_fault = about_to_call;
}
