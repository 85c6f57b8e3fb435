/* An HTTP/2 connection: a session of libnghttp2 over a socket in the loop. */
#pragma once

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#include "bytes.h"
#include "loop.h"
#include "protobuf.h"

struct h2 {
	struct loop *loop;
	struct loop_watch watch; /* its descriptor is the socket */
	nghttp2_session *session;
	const uint8_t *out; /* the session's bytes that the socket had no room for */
	size_t out_len;
	bool writes; /* the loop watches for room */
	bool inside; /* the session runs: it must not be run from its own callbacks */
	/* The connection is over: closes it, and frees whatever has it. */
	void (*over)(void *arg);
	void *arg;
};

/* Takes the socket over, which does not block; session, over and arg are set. 0, or a negative
 * errno, and then the caller closes both. */
int h2_open(struct h2 *h2, struct loop *loop, int fd);
/* Frees the session and closes the socket. */
void h2_close(struct h2 *h2);

/* Sends what the session has. */
void h2_flush(struct h2 *h2);

/* An option for both ends: gRPC's clients write an authority that is no host, such as the socket's
 * path (the kubelet 1.20's) or a percent-encoded one (1.3x's), which libnghttp2 refuses where it
 * checks headers by HTTP's rules. NULL without memory. */
nghttp2_option *h2_option(void);

/* A header that is not copied. */
nghttp2_nv h2_header(const char *name, const char *value);
#define H2_COUNT(headers) (sizeof(headers) / sizeof((headers)[0]))

/* A Unix socket's address. -ENAMETOOLONG. */
int h2_address(const char *path, struct sockaddr_un *ret_address);

#define H2_PREFIX_LEN 5 /* bytes before a message of gRPC's */

/* Begins a message of gRPC's, and ends it when all of it was added. */
void h2_message_begin(struct bytes *framed);
void h2_message_end(struct bytes *framed);
/* The one message of a call: false where the bytes are not exactly that, or it is compressed. */
bool h2_message_take(const struct bytes *framed, struct pb_message *ret_message);

/* Copies what is left of framed after *at into the session's buffer, and moves *at on. */
size_t h2_copy(const struct bytes *framed, size_t *at, uint8_t *buf, size_t len);
