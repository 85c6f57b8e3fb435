/*
 * The handler puts zeros in the place of the page, and the load that found it gone is made again.
 * So nothing is jumped out of, no process is forked, and a thousand files cost two system calls.
 * Any other SIGBUS (a broken module of memory, or a mistake elsewhere in vgpu) ends the program, as
 * without the handler. For one thread only.
 */
#include "guard.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "sys.h"

/* Written by this file's functions alone, page_size before the handler is there. */
static volatile sig_atomic_t guarding; /* how many begins have no end yet */
static volatile sig_atomic_t lost;
static uintptr_t page_size;

static void on_bus(int number, siginfo_t *info, void *context)
{
	void *page = (void *)((uintptr_t)info->si_addr & ~(page_size - 1));

	(void)context;
	if (!guarding || info->si_code != BUS_ADRERR || sys_map_zeros_over(page, page_size) != 0)
		signal(number, SIG_DFL); /* and it comes again */
	else
		lost = 1;
}

static void install(void)
{
	struct sigaction action;

	page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
	memset(&action, 0, sizeof(action));
	action.sa_sigaction = on_bus;
	action.sa_flags = SA_SIGINFO;
	sigaction(SIGBUS, &action, NULL);
}

void guard_begin(void)
{
	if (!page_size)
		install();
	if (guarding == 0)
		lost = 0;
	guarding = guarding + 1;
}

bool guard_lost(void)
{
	return lost != 0;
}

bool guard_end(void)
{
	guarding = guarding - 1;
	return lost != 0;
}
