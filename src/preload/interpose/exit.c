/*
 * When the process exits, it hides from monitors (region_begin_exit), so that they do not count a
 * process that has ended. Its charge stays. Its turns are given up (pace_begin_exit), so that other
 * slices need not find it dead.
 *
 * How it works. exit, a return from main and the end of the last thread run the destructors of the
 * loaded objects, ours among them. quick_exit runs none, but the handlers that were registered for
 * it. _exit runs nothing at all. This library exports _exit, because runtimes end processes with it
 * (Python's multiprocessing does), and calls _Exit, which is libc's other name for it.
 *
 * Hooks are called after all this, by other threads and by destructors that run after ours. They
 * work as before.
 *
 * What it is not: complete. A process that is killed, that makes the system call itself (as Go
 * programs do) or that executes another program leaves its slot as it is. The next CUDA process of
 * the slice clears it.
 */
#include "exit.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "hooks.h"
#include "pace.h"
#include "quota.h"

static bool begun; /* atomic: any thread may exit */

/* at_quick_exit, under the name that libc itself exports since 2.10. */
int __cxa_at_quick_exit(void (*handler)(void *), void *dso);

static void begin(void)
{
	__atomic_store_n(&begun, true, __ATOMIC_SEQ_CST);
	quota_begin_exit();
	pace_begin_exit();
}

__attribute__((destructor)) static void begin_at_exit(void)
{
	begin();
}

static void begin_at_quick_exit(void *arg)
{
	(void)arg;
	begin();
}

/* In a vfork child, which has the parent's memory, quota_begin_exit and pace_begin_exit do nothing,
 * and neither may anything else here. */
void _exit(int status)
{
	quota_begin_exit();
	pace_begin_exit();
	_Exit(status);
}

void exit_follow(void)
{
	__cxa_at_quick_exit(begin_at_quick_exit, NULL);
	if (__atomic_load_n(&begun, __ATOMIC_SEQ_CST)) /* a destructor began to use CUDA */
		quota_begin_exit();
}

void exit_forked(void)
{
	begun = false;
}
