#include "watched.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "region_internal.h"
#include "sys.h"

#define SIZE     sizeof(struct vgpu_region_file)
#define PAGE     ((uintptr_t)4096)
#define MAPPINGS 4

/* Written by the one thread that there is, also in its signal handlers. */
static char *mappings[MAPPINGS];
static struct watched *watched; /* NULL: nothing is watched */
static void (*action)(void);
static struct watched_place at;
static bool is_protected;

static void protect_all(bool read_only)
{
	for (unsigned i = 0; i < MAPPINGS; i++)
		if (mappings[i])
			mprotect(mappings[i], SIZE, read_only ? PROT_READ : PROT_READ | PROT_WRITE);
	is_protected = read_only;
}

/* -- what is passed and met ------------------------------------------------------------------- */

static void pass(void)
{
	at.passes++;
	at.events = 0;
	if (!is_protected && !watched->acted && at.passes >= watched->target.passes)
		protect_all(true);
}

static void pass_step(enum region_step step)
{
	(void)step;
	if (watched)
		pass();
}

static void meet(const char *what, uint64_t number)
{
	at.events++;
	if (watched->acted || at.passes < watched->target.passes ||
	    (at.passes == watched->target.passes && at.events < watched->target.events))
		return;
	watched->met = at;
	watched->acted = true;
	snprintf(watched->what, sizeof(watched->what), "%s %llu", what, (unsigned long long)number);
	action();
	protect_all(false); /* there is no more to meet */
}

/* Calls that others can see, and that are made each time alike: how often the time is asked for, or
 * /proc is looked at, depends on the machine. Behind the open that creates a file comes fchmod. */
static bool is_seen(long number)
{
	switch (number) {
	case SYS_ftruncate:
	case SYS_write:
	case SYS_fchmod:
	case SYS_fcntl:
	case SYS_munmap:
	case SYS_futex:
		return true;
	default:
		return false;
	}
}

static long meet_call(long number)
{
	if (watched && is_seen(number)) {
		meet("system call", (uint64_t)number);
		pass();
	}
	return 0;
}

/* -- the region's mappings: sys_map_shared and sys_unmap are linked to these --------------------
 */

int __real_sys_map_shared(int fd, size_t len, bool writable, void **ret_addr);
int __wrap_sys_map_shared(int fd, size_t len, bool writable, void **ret_addr);
int __real_sys_unmap(void *addr, size_t len);
int __wrap_sys_unmap(void *addr, size_t len);

int __wrap_sys_map_shared(int fd, size_t len, bool writable, void **ret_addr)
{
	int error = __real_sys_map_shared(fd, len, writable, ret_addr);
	unsigned i = 0;

	if (error || !writable || len != SIZE)
		return error;
	while (i < MAPPINGS && mappings[i])
		i++;
	if (i == MAPPINGS)
		abort();
	mappings[i] = *ret_addr;
	if (is_protected)
		mprotect(*ret_addr, SIZE, PROT_READ);
	return 0;
}

int __wrap_sys_unmap(void *addr, size_t len)
{
	for (unsigned i = 0; i < MAPPINGS; i++)
		if (mappings[i] == addr)
			mappings[i] = NULL;
	return __real_sys_unmap(addr, len);
}

/* -- faults and traps ------------------------------------------------------------------------- */

#if defined(__x86_64__)

#define TRAP_FLAG   0x100
#define WRITE_FAULT 2 /* in the page fault's error code */

static char *mapping_of(const void *addr)
{
	for (unsigned i = 0; i < MAPPINGS; i++)
		if (mappings[i] && (const char *)addr >= mappings[i] &&
		    (const char *)addr < mappings[i] + SIZE)
			return mappings[i];
	return NULL;
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	uintptr_t addr = (uintptr_t)info->si_addr;
	char *mapping = mapping_of(info->si_addr);

	if (!mapping || !is_protected || !(registers[REG_ERR] & WRITE_FAULT)) {
		sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
		return; /* to where it will happen again */
	}
	if (watched)
		meet("a store at byte", addr - (uintptr_t)mapping);
	mprotect((void *)(addr & ~(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
	registers[REG_EFL] |= TRAP_FLAG;
}

static void on_trap(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info;
	((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
	if (is_protected)
		protect_all(true);
}

static bool can_trap(void)
{
	return true;
}

#else

static void on_fault(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info, (void)context;
}

static void on_trap(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info, (void)context;
}

static bool can_trap(void)
{
	puts("skipped: stores are met one by one with x86-64's trap flag only");
	return false;
}

#endif

/* -- the contract ----------------------------------------------------------------------------- */

static void handle(int signal, void (*handler)(int, siginfo_t *, void *))
{
	struct sigaction act = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};

	sigaction(signal, &act, NULL);
}

void watched_prepare(void)
{
	handle(SIGSEGV, on_fault);
	handle(SIGTRAP, on_trap);
	sys_fault = meet_call;
	region_step_hook = pass_step;
}

void watched_begin(struct watched *new_watched, void (*act)(void))
{
	at = (struct watched_place){0, 0};
	action = act;
	new_watched->acted = false;
	watched = new_watched;
	if (watched->target.passes == 0)
		protect_all(true);
}

void watched_end(void)
{
	watched = NULL;
	protect_all(false);
}

static unsigned acted;

static void note(void)
{
	acted++;
}

/* Three stores, of which the last is met: a machine that is none (gVisor, valgrind) may not do what
 * the handlers ask for. */
bool watched_is_possible(void)
{
	struct watched trial = {.target = {0, 3}};
	struct vgpu_region_file *file;
	bool good;

	if (!can_trap())
		return false;
	file = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (file == MAP_FAILED)
		return false;
	acted = 0;
	mappings[0] = (char *)file;
	watched_prepare();
	watched_begin(&trial, note);
	REGION_STORE(file->own.made, 1);
	REGION_STORE(file->own.lock, 2);
	__atomic_add_fetch(&file->own.lock, 1, __ATOMIC_SEQ_CST);
	watched_end();
	sys_fault = NULL;
	region_step_hook = NULL;
	good = acted == 1 && trial.met.events == 3 && file->own.lock == 3;
	mappings[0] = NULL;
	munmap(file, SIZE);
	if (good)
		return true;
	puts("skipped: stores cannot be met one by one here");
	return false;
}
