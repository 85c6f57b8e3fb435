/*
 * Two threads that advance backlogs (backlog.c) while the application does something else. One ends
 * tasks; the other calls functions of the host, one after the other. Each is started when it is
 * first needed, has all signals blocked, and runs as long as the process. Both sleep while there is
 * nothing to do.
 */
#include "backlog.h"

#include <signal.h>
#include <sys/prctl.h>

static bool advancing, calling;  /* the two threads exist; all of these: backlogs_lock */
static uint64_t sleeps_until_ns; /* of the thread that ends tasks, unless the bell rings */
static struct task *calls, *calls_last;
static pthread_cond_t called = PTHREAD_COND_INITIALIZER;

static bool thread_start(void *(*body)(void *))
{
	sigset_t all, before;
	pthread_t thread;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	bool started = !pthread_create(&thread, NULL, body, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (started)
		pthread_detach(thread);
	return started;
}

static uint64_t after(uint64_t now_ns, uint64_t rest_ns)
{
	return rest_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + rest_ns;
}

__attribute__((noreturn)) static void *advance(void *nothing)
{
	(void)nothing;
	prctl(PR_SET_TIMERSLACK, 1);
	for (;;) {
		uint32_t bell = machine_bell();

		backlogs_lock();
		uint64_t rest_ns = backlogs_advance_locked();
		sleeps_until_ns = after(timeline_now(), rest_ns);
		backlogs_unlock();
		machine_bell_wait(bell, rest_ns);
	}
}

void backlog_thread_wake_locked(uint64_t rest_ns)
{
	if (!advancing)
		advancing = thread_start(advance);
	else if (after(timeline_now(), rest_ns) < sleeps_until_ns)
		machine_bell_ring();
}

__attribute__((noreturn)) static void *make_calls(void *nothing)
{
	(void)nothing;
	backlogs_lock();
	for (;;) {
		struct task *task = calls;

		if (!task) {
			backlogs_wait_locked(&called);
			continue;
		}
		calls = task->next_call;
		backlogs_unlock();
		stream_call_make(&task->call);
		backlogs_lock();
		task->called_ns = timeline_now();
		task_put_locked(task);
		backlog_thread_wake_locked(backlogs_advance_locked());
	}
}

void backlog_thread_call_locked(struct task *task)
{
	task->references++;
	task->next_call = NULL;
	if (calls)
		calls_last->next_call = task;
	else
		calls = task;
	calls_last = task;
	if (!calling)
		calling = thread_start(make_calls);
	else
		pthread_cond_signal(&called);
}

void backlog_thread_forked(void)
{
	pthread_cond_init(&called, NULL);
	advancing = calling = false;
	sleeps_until_ns = 0;
	calls = NULL;
}
