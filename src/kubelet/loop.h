/* A program's event loop: descriptors, each with a function that is called when it is ready. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct loop_watch {
	int fd;
	/* events: EPOLLIN and others; may free the watch */
	void (*ready)(void *arg, uint32_t events);
	void *arg;
};

struct loop; /* used by one thread */

struct loop *loop_new(void); /* returns NULL with errno on failure */
void loop_free(struct loop *loop);

/* loop_add watches for EPOLLIN; loop_change sets whether it also watches for EPOLLOUT. The
 * watch is the caller's, and must live until loop_remove. loop_add returns 0 or a negative
 * errno. */
int loop_add(struct loop *loop, struct loop_watch *watch);
void loop_change(struct loop *loop, struct loop_watch *watch, bool writes);
/* Call it before the descriptor is closed. */
void loop_remove(struct loop *loop, struct loop_watch *watch);

/* Makes a timer: a descriptor that is ready after after_ms, and then every period_ms.
 * after_ms 0: not before loop_timer_set; period_ms 0: once. The function that is called for it
 * must call loop_timer_read. Returns a negative errno on failure. */
int loop_timer(uint64_t after_ms, uint64_t period_ms);
/* Makes the timer ready once, after_ms from now. This needs no descriptor and no memory. */
void loop_timer_set(int fd, uint64_t after_ms);
void loop_timer_read(int fd);

/* loop_run returns after loop_end was called. */
void loop_run(struct loop *loop);
void loop_end(struct loop *loop);
