/*
 * The HTTP server, by libmicrohttpd: /metrics and nothing else. It has no thread of its own: the
 * caller polls its descriptor, and all of it happens in server_run. A client that floods it, sends
 * garbage or nothing gets no answer: the number of connections is limited, in all and of one
 * address, and each has one request and ends at a fixed time after it began.
 */
#pragma once

#include <stdint.h>

#include "fault.h"
#include "text.h"

struct server_settings {
	int listener; /* a socket that listens; the server takes it */
	unsigned connections, client_connections, timeout_s;
	const char *certificate, *key; /* in PEM; NULL: plain HTTP */
	const char *token; /* of "Authorization: Bearer TOKEN"; NULL: none is asked for */
	/* Writes the answer to /metrics. */
	void (*write)(struct text *text, void *arg);
	void *arg;
};

struct server;

/* NULL with a fault; the listener is closed then. What settings point to is copied, but for arg. */
struct server *server_start(const struct server_settings *settings, struct fault *fault);
void server_stop(struct server *server); /* also of NULL */

/* Readable when there is something to do, for server_run; and after how long there is at the
 * latest, -1 for never. */
int server_fd(const struct server *server);
int server_wait_ms(const struct server *server);
void server_run(struct server *server);
/* Once a second: ends connections whose time is over. */
void server_tick(struct server *server);
/* The answer has changed: it is written again for the next request. */
void server_renew(struct server *server);

/* How many requests got an answer of a class: 2 for 200 to 299, and so on. */
uint64_t server_answers(const struct server *server, unsigned class);
