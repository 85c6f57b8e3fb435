/*
 * The HTTP server, by libmicrohttpd, which serves only /metrics. It has no thread: the caller
 * polls its descriptor, and all work happens in server_run. A client that floods the server, or
 * sends garbage or nothing, gets no answer. The number of connections is limited, in total and
 * for each address. A connection has one request, and ends at a fixed time after it began.
 */
#pragma once

#include <stdint.h>

#include "fault.h"
#include "text.h"

struct server_settings {
	int listener; /* a socket that listens; the server closes it */
	unsigned connections, client_connections, timeout_s;
	const char *certificate, *key; /* in PEM; NULL: plain HTTP */
	const char *token; /* of "Authorization: Bearer TOKEN"; NULL: no token is needed */
	/* Writes the answer to /metrics. */
	void (*write)(struct text *text, void *arg);
	void *arg;
};

struct server;

/* Starts the server. Returns NULL with a fault on failure, and the listener is closed then. The
 * texts of settings are copied; arg must live as long as the server. */
struct server *server_start(const struct server_settings *settings, struct fault *fault);
void server_stop(struct server *server); /* also of NULL */

/* The descriptor, owned by the server, is readable when server_run has something to do. */
int server_fd(const struct server *server);
/* The time in ms after which server_run must be called at the latest; -1: never. */
int server_wait_ms(const struct server *server);
void server_run(struct server *server);
/* Call it once a second. It ends connections whose time is over. */
void server_tick(struct server *server);
/* Call it when the answer has changed. The answer is written again for the next request. */
void server_renew(struct server *server);

/* The number of requests that got an answer of a class: 2 for 200 to 299, and so on. server may
 * be NULL. */
uint64_t server_answers(const struct server *server, unsigned class);
