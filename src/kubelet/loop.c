/*
 * Each wait takes one event from epoll. So a function may close any descriptor and free any
 * watch, and no event of it is left to be delivered. epoll reports ready descriptors in turn,
 * so none starves.
 */
#include "loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define MS_PER_S  1000
#define NS_PER_MS 1000000

struct loop {
	int fd;
	bool ends;
};

struct loop *loop_new(void)
{
	struct loop *loop = calloc(1, sizeof(*loop));

	if (!loop)
		return NULL;
	loop->fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->fd >= 0)
		return loop;
	free(loop);
	return NULL;
}

void loop_free(struct loop *loop)
{
	if (!loop)
		return;
	close(loop->fd);
	free(loop);
}

int loop_add(struct loop *loop, struct loop_watch *watch)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};

	return epoll_ctl(loop->fd, EPOLL_CTL_ADD, watch->fd, &event) < 0 ? -errno : 0;
}

void loop_change(struct loop *loop, struct loop_watch *watch, bool writes)
{
	struct epoll_event event = {.events = writes ? EPOLLIN | EPOLLOUT : EPOLLIN,
				    .data.ptr = watch};

	epoll_ctl(loop->fd, EPOLL_CTL_MOD, watch->fd, &event);
}

void loop_remove(struct loop *loop, struct loop_watch *watch)
{
	epoll_ctl(loop->fd, EPOLL_CTL_DEL, watch->fd, NULL);
}

static struct timespec timespec_of(uint64_t ms)
{
	return (struct timespec){(time_t)(ms / MS_PER_S), (long)(ms % MS_PER_S) * NS_PER_MS};
}

static void set_timer(int fd, uint64_t after_ms, uint64_t period_ms)
{
	struct itimerspec when = {timespec_of(period_ms), timespec_of(after_ms)};

	timerfd_settime(fd, 0, &when, NULL);
}

int loop_timer(uint64_t after_ms, uint64_t period_ms)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

	if (fd < 0)
		return -errno;
	set_timer(fd, after_ms, period_ms);
	return fd;
}

void loop_timer_set(int fd, uint64_t after_ms)
{
	set_timer(fd, after_ms, 0);
}

void loop_timer_read(int fd)
{
	uint64_t count;

	if (read(fd, &count, sizeof(count)) < 0)
		return; /* an earlier call has read it */
}

void loop_run(struct loop *loop)
{
	while (!loop->ends) {
		struct epoll_event event;
		const struct loop_watch *watch;

		if (epoll_wait(loop->fd, &event, 1, -1) != 1)
			continue;
		watch = event.data.ptr;
		watch->ready(watch->arg, event.events);
	}
}

void loop_end(struct loop *loop)
{
	loop->ends = true;
}
