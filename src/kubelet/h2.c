/*
 * The session's bytes are sent straight from its own memory. If the socket has no room for
 * them, they stay there, and the session is asked for more only after they are sent. So a peer
 * that does not read costs one buffer. A connection ends only in the loop (on_ready). A flush
 * elsewhere that fails shuts the socket down, which the loop then notices.
 */
#include "h2.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_BYTES 16384

/* -- the connection ---------------------------------------------------------------------------- */

/* Sends as many bytes as the socket takes. Returns 0, or a negative errno. */
static int send_some(struct h2 *h2)
{
	for (;;) {
		ssize_t sent;

		if (h2->out_len == 0) {
			ssize_t len = nghttp2_session_mem_send(h2->session, &h2->out);

			if (len < 0)
				return -EPROTO;
			if (len == 0)
				return 0;
			h2->out_len = (size_t)len;
		}
		sent = send(h2->watch.fd, h2->out, h2->out_len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return errno == EAGAIN ? 0 : -errno;
		h2->out += sent;
		h2->out_len -= (size_t)sent;
	}
}

static int flush(struct h2 *h2)
{
	bool writes;
	int error;

	h2->inside = true;
	error = send_some(h2);
	h2->inside = false;
	writes = h2->out_len > 0;
	if (!error && writes != h2->writes) {
		h2->writes = writes;
		loop_change(h2->loop, &h2->watch, writes);
	}
	return error;
}

void h2_flush(struct h2 *h2)
{
	if (!h2->inside && flush(h2) < 0)
		shutdown(h2->watch.fd, SHUT_RDWR);
}

static int receive(struct h2 *h2)
{
	uint8_t buf[READ_BYTES];
	ssize_t len = recv(h2->watch.fd, buf, sizeof(buf), MSG_DONTWAIT);

	if (len < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (len == 0)
		return -ECONNRESET;
	h2->inside = true;
	len = nghttp2_session_mem_recv(h2->session, buf, (size_t)len);
	h2->inside = false;
	return len < 0 ? -EPROTO : 0;
}

static bool is_done(const struct h2 *h2)
{
	return h2->out_len == 0 && !nghttp2_session_want_read(h2->session) &&
	       !nghttp2_session_want_write(h2->session);
}

static void on_ready(void *arg, uint32_t events)
{
	struct h2 *h2 = arg;
	int error = events & ~(uint32_t)EPOLLOUT ? receive(h2) : 0;

	/* The flush comes also after an error, so that a peer that broke the protocol gets the
	 * reason. */
	if (flush(h2) < 0 || error || is_done(h2))
		h2->over(h2->arg);
}

int h2_open(struct h2 *h2, struct loop *loop, int fd)
{
	h2->loop = loop;
	h2->watch = (struct loop_watch){.fd = fd, .ready = on_ready, .arg = h2};
	return loop_add(loop, &h2->watch);
}

void h2_close(struct h2 *h2)
{
	loop_remove(h2->loop, &h2->watch);
	nghttp2_session_del(h2->session);
	close(h2->watch.fd);
}

/* -- for servers and clients ------------------------------------------------------------------- */

nghttp2_option *h2_option(void)
{
	nghttp2_option *option;

	if (nghttp2_option_new(&option))
		return NULL;
	nghttp2_option_set_no_http_messaging(option, 1);
	return option;
}

nghttp2_nv h2_header(const char *name, const char *value)
{
	return (nghttp2_nv){
		.name = (uint8_t *)(uintptr_t)name,
		.value = (uint8_t *)(uintptr_t)value,
		.namelen = strlen(name),
		.valuelen = strlen(value),
		.flags = NGHTTP2_NV_FLAG_NONE,
	};
}

int h2_address(const char *path, struct sockaddr_un *ret_address)
{
	size_t len = strlen(path);

	if (len >= sizeof(ret_address->sun_path))
		return -ENAMETOOLONG;
	memset(ret_address, 0, sizeof(*ret_address));
	ret_address->sun_family = AF_UNIX;
	memcpy(ret_address->sun_path, path, len);
	return 0;
}

/* -- messages ---------------------------------------------------------------------------------- */

void h2_message_begin(struct bytes *framed)
{
	static const uint8_t prefix[H2_PREFIX_LEN];

	bytes_clear(framed);
	bytes_add(framed, prefix, sizeof(prefix));
}

void h2_message_end(struct bytes *framed)
{
	size_t len = framed->len - H2_PREFIX_LEN;

	if (framed->failed || len > UINT32_MAX) {
		framed->failed = true;
		return;
	}
	for (unsigned i = 0; i < sizeof(uint32_t); i++)
		framed->data[1 + i] = (uint8_t)(len >> (8 * (3 - i)));
}

bool h2_message_take(const struct bytes *framed, struct pb_message *ret_message)
{
	size_t len = 0;

	if (framed->failed || framed->len < H2_PREFIX_LEN || framed->data[0] != 0)
		return false;
	for (unsigned i = 0; i < sizeof(uint32_t); i++)
		len = len << 8 | framed->data[1 + i];
	ret_message->at = framed->data + H2_PREFIX_LEN;
	ret_message->end = framed->data + framed->len;
	return len == framed->len - H2_PREFIX_LEN;
}

size_t h2_copy(const struct bytes *framed, size_t *at, uint8_t *buf, size_t len)
{
	size_t left = framed->len - *at;

	if (len > left)
		len = left;
	if (len)
		memcpy(buf, framed->data + *at, len);
	*at += len;
	return len;
}
