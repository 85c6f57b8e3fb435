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
	struct loop_watch watch; /* its descriptor is the connection's socket */
	nghttp2_session *session;
	const uint8_t *out; /* bytes of the session that the socket had no room for */
	size_t out_len;
	bool writes; /* the loop waits for room in the socket */
	bool inside; /* the session runs, and must not be run again from its callbacks */
	/* Called when the connection is over. It must call h2_close and may free this
	 * struct. */
	void (*over)(void *arg);
	void *arg;
};

/* Takes over a non-blocking socket. The caller has set session, over and arg. Returns 0; or a
 * negative errno, and then the caller still owns the socket and the session. */
int h2_open(struct h2 *h2, struct loop *loop, int fd);
/* Frees the session and closes the socket. */
void h2_close(struct h2 *h2);

/* Sends bytes that the session has, as far as the socket has room. */
void h2_flush(struct h2 *h2);

/* An option for sessions of servers and clients; NULL without memory. It switches off
 * libnghttp2's check of headers by HTTP's rules. gRPC's clients send an authority that is no
 * host, which that check refuses: the socket's path (kubelet 1.20), or a percent-encoded one
 * (1.3x). */
nghttp2_option *h2_option(void);

/* A header; libnghttp2 copies its texts when it is submitted. */
nghttp2_nv h2_header(const char *name, const char *value);
#define H2_COUNT(headers) (sizeof(headers) / sizeof((headers)[0]))

/* Makes a Unix socket's address. Returns 0, or -ENAMETOOLONG. */
int h2_address(const char *path, struct sockaddr_un *ret_address);

#define H2_PREFIX_LEN 5 /* bytes before a message of gRPC */

/* Begin and end a message of gRPC. Its bytes are added to framed in between. */
void h2_message_begin(struct bytes *framed);
void h2_message_end(struct bytes *framed);
/* Finds the one message of a call. Returns false if the bytes are not exactly one message, or
 * it is compressed. */
bool h2_message_take(const struct bytes *framed, struct pb_message *ret_message);

/* Copies bytes of framed from *at on to the session's buffer, at most len, and moves *at past
 * them. Returns their number. */
size_t h2_copy(const struct bytes *framed, size_t *at, uint8_t *buf, size_t len);
