/* The program's loop: descriptors, each with a function that is called when it is ready. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct loop_watch {
	int fd;
	void (*ready)(void *arg, uint32_t events); /* EPOLLIN and so on; may free the watch */
	void *arg;
};

struct loop; /* one thread */

struct loop *loop_new(void); /* NULL with errno */
void loop_free(struct loop *loop);

/* Watches for EPOLLIN, and where `writes` for EPOLLOUT. The watch is the caller's, and stays until
 * loop_remove. 0 or a negative errno. */
int loop_add(struct loop *loop, struct loop_watch *watch);
void loop_change(struct loop *loop, struct loop_watch *watch, bool writes);
/* Before the descriptor is closed. */
void loop_remove(struct loop *loop, struct loop_watch *watch);

/* A descriptor that is ready once, after so many ms, and every period_ms from then on (0: never
 * again). Whoever reads it calls loop_timer_read. */
int loop_timer(uint64_t after_ms, uint64_t period_ms);
void loop_timer_read(int fd);

/* Until loop_end is called. */
void loop_run(struct loop *loop);
void loop_end(struct loop *loop);
