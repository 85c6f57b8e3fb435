/*
 * The part of gRPC that the kubelet's plugins need, over HTTP/2 and Unix sockets. It has a server
 * of unary calls and of calls with a stream of answers, and a client of unary calls. There is one
 * thread and one loop, and no function waits.
 *
 * A message on the wire is a byte that says whether it is compressed, its length in four bytes,
 * and its bytes. Compressed messages are refused, as no compression is offered.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bytes.h"
#include "fault.h"
#include "loop.h"
#include "protobuf.h"

/* gRPC's status codes. */
enum grpc_status {
	GRPC_OK = 0,
	GRPC_UNKNOWN = 2,
	GRPC_INVALID_ARGUMENT = 3,
	GRPC_DEADLINE_EXCEEDED = 4,
	GRPC_NOT_FOUND = 5,
	GRPC_RESOURCE_EXHAUSTED = 8,
	GRPC_FAILED_PRECONDITION = 9,
	GRPC_UNIMPLEMENTED = 12,
	GRPC_INTERNAL = 13,
	GRPC_UNAVAILABLE = 14,
};

#define GRPC_MESSAGE_MAX (1024 * 1024)      /* bytes of a request that a server accepts */
#define GRPC_ANSWER_MAX  (16 * 1024 * 1024) /* bytes of an answer that a client accepts */

/* -- server -- */

struct grpc_method {
	const char *path; /* "/package.Service/Method" */
	/* Adds the answer to ret_message. Any status but GRPC_OK comes with a fault. For a
	 * stream, it is called for the first message, and again after each
	 * grpc_server_renew. */
	enum grpc_status (*answer)(void *arg, struct pb_message request, struct bytes *ret_message,
				   struct fault *fault);
	bool streams;
};

struct grpc_server;

/* Serves the methods, a table that ends with a NULL path, on a Unix socket. The socket is made
 * at path with mode 0600, in place of any other. Returns NULL with a fault on failure. */
struct grpc_server *grpc_serve(struct loop *loop, const char *path,
			       const struct grpc_method *methods, void *arg, struct fault *fault);
/* Ends the server's connections, and removes the socket if it is still this server's. Accepts
 * NULL. */
void grpc_server_stop(struct grpc_server *server);

/* Makes every stream send one more message. While a stream has yet to send that message,
 * further calls add none. */
void grpc_server_renew(struct grpc_server *server);

/* Whether the server's socket is still at its path. */
bool grpc_server_is_there(const struct grpc_server *server);
/* The number of open streams, of all connections. */
unsigned grpc_server_streams(const struct grpc_server *server);

/* -- client -- */

struct grpc_call;

/* Called when a call is over; the call is freed afterwards. answer is empty unless status is
 * GRPC_OK. why is the reason otherwise. */
typedef void grpc_done(void *arg, enum grpc_status status, struct pb_message answer,
		       const char *why);

/* Calls a method of the server that listens on the Unix socket. done is called once, later,
 * from the loop. Returns NULL with a fault on failure, and done is not called then. */
struct grpc_call *grpc_call(struct loop *loop, const char *socket, const char *path,
			    const struct bytes *message, unsigned timeout_ms, grpc_done *done,
			    void *arg, struct fault *fault);
/* Ends the call without calling done. Accepts NULL. */
void grpc_call_cancel(struct grpc_call *call);
