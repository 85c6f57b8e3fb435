/*
 * gRPC over HTTP/2 and Unix sockets, as far as the kubelet's plugins need it: a server of unary
 * calls and of calls that are answered by a stream, and a client of unary calls. One thread, one
 * loop; no function waits.
 *
 * A message on the wire is a byte that says whether it is compressed, its length in four bytes, and
 * itself. Compressed ones are refused, as no compression is offered.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bytes.h"
#include "fault.h"
#include "loop.h"
#include "protobuf.h"

/* gRPC's numbers. */
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

#define GRPC_MESSAGE_MAX (1024 * 1024)      /* bytes of a message that a server takes */
#define GRPC_ANSWER_MAX  (16 * 1024 * 1024) /* of one that a client takes */

/* -- server -- */

struct grpc_method {
	const char *path; /* "/package.Service/Method" */
	/* Adds the answer to ret_message. Another status than GRPC_OK comes with a fault. Of a
	 * stream: called for its first message, and again after each grpc_server_renew. */
	enum grpc_status (*answer)(void *arg, struct pb_message request, struct bytes *ret_message,
				   struct fault *fault);
	bool streams;
};

struct grpc_server;

/* Serves the methods, a table that ends with a NULL path, on a Unix socket that is made at path
 * with mode 0600, in the place of one that is there. NULL with a fault. */
struct grpc_server *grpc_serve(struct loop *loop, const char *path,
			       const struct grpc_method *methods, void *arg, struct fault *fault);
/* Ends its connections, and removes the socket if it still is this server's. Also of NULL. */
void grpc_server_stop(struct grpc_server *server);

/* Has every stream send a message once more: where one is not sent yet, one follows it for any
 * number of calls. */
void grpc_server_renew(struct grpc_server *server);

/* Whether the socket is still there. */
bool grpc_server_is_there(const struct grpc_server *server);
/* How many streams there are. */
unsigned grpc_server_streams(const struct grpc_server *server);

/* -- client -- */

struct grpc_call;

/* The call is over, and freed afterwards. answer is empty unless status is GRPC_OK; why says what
 * is wrong otherwise. */
typedef void grpc_done(void *arg, enum grpc_status status, struct pb_message answer,
		       const char *why);

/* Calls the method at path of whoever listens on the Unix socket. done is called later, once, from
 * the loop. NULL with a fault: it is not called. */
struct grpc_call *grpc_call(struct loop *loop, const char *socket, const char *path,
			    const struct bytes *message, unsigned timeout_ms, grpc_done *done,
			    void *arg, struct fault *fault);
/* Ends the call, and done is not called. Also of NULL. */
void grpc_call_cancel(struct grpc_call *call);
