/*
 * A call has a connection and a timer of its own. It is over at the first of three events: its
 * stream ends, the connection breaks, or the time is up. Then done is called, and the call is
 * freed. If a stream ends while the session runs, that is only noted, since the session must
 * not be freed by its own callback.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "grpc.h"
#include "h2.h"

#define NO_STATUS (-1)

struct grpc_call {
	struct h2 h2;
	struct loop *loop;
	struct loop_watch timer;
	struct bytes request, answer; /* framed */
	size_t sent;                  /* bytes of the request that were sent */
	int status;                   /* the server's status, or NO_STATUS */
	char why[256];
	bool too_long;
	grpc_done *done;
	void *arg;
};

/* -- the end ----------------------------------------------------------------------------------- */

static void free_call(struct grpc_call *call)
{
	h2_close(&call->h2);
	loop_remove(call->loop, &call->timer);
	close(call->timer.fd);
	bytes_free(&call->request);
	bytes_free(&call->answer);
	free(call);
}

void grpc_call_cancel(struct grpc_call *call)
{
	if (call)
		free_call(call);
}

static void end(struct grpc_call *call, enum grpc_status status, struct pb_message answer,
		const char *why)
{
	call->done(call->arg, status, answer, why);
	free_call(call);
}

/* Ends the call when its stream or connection is over. */
static void on_over(void *arg)
{
	struct grpc_call *call = arg;
	struct pb_message answer = {NULL, NULL};

	if (call->too_long)
		end(call, GRPC_RESOURCE_EXHAUSTED, answer, "the answer is too long");
	else if (call->status == NO_STATUS)
		end(call, GRPC_UNAVAILABLE, answer, "the connection ended");
	else if (call->status != GRPC_OK)
		end(call, (enum grpc_status)call->status, answer, call->why);
	else if (!h2_message_take(&call->answer, &answer))
		end(call, GRPC_INTERNAL, (struct pb_message){NULL, NULL},
		    "the answer is not one message");
	else
		end(call, GRPC_OK, answer, "");
}

static void on_timeout(void *arg, uint32_t events)
{
	struct grpc_call *call = arg;

	(void)events;
	end(call, GRPC_DEADLINE_EXCEEDED, (struct pb_message){NULL, NULL}, "there was no answer");
}

/* -- libnghttp2's callbacks -------------------------------------------------------------------- */

static bool is_name(const uint8_t *name, size_t len, const char *wanted)
{
	return len == strlen(wanted) && memcmp(name, wanted, len) == 0;
}

/* Reads a status of one or two digits. Anything else counts as no status. */
static int read_status(const uint8_t *value, size_t len)
{
	int status = 0;

	for (size_t i = 0; i < len; i++) {
		if (i == 2 || value[i] < '0' || value[i] > '9')
			return NO_STATUS;
		status = status * 10 + (value[i] - '0');
	}
	return len ? status : NO_STATUS;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
		     void *arg)
{
	struct grpc_call *call = arg;

	(void)session, (void)frame, (void)flags;
	if (is_name(name, name_len, "grpc-status")) {
		call->status = read_status(value, value_len);
	} else if (is_name(name, name_len, "grpc-message")) {
		snprintf(call->why, sizeof(call->why), "%.*s", (int)value_len, (const char *)value);
	}
	return 0;
}

static int on_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
		    size_t len, void *arg)
{
	struct grpc_call *call = arg;

	(void)session, (void)flags, (void)id;
	if (call->answer.len + len > GRPC_ANSWER_MAX + H2_PREFIX_LEN)
		call->too_long = true;
	else
		bytes_add(&call->answer, data, len);
	return 0;
}

/* Ends the session when the stream ends. The session then wants neither to read nor to write,
 * so h2.c ends the connection. */
static int on_close(nghttp2_session *session, int32_t id, uint32_t error, void *arg)
{
	(void)id, (void)error, (void)arg;
	return nghttp2_session_terminate_session(session, NGHTTP2_NO_ERROR);
}

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t len,
		       uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct grpc_call *call = arg;

	(void)session, (void)id, (void)source;
	len = h2_copy(&call->request, &call->sent, buf, len);
	if (call->sent == call->request.len)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)len;
}

/* -- the beginning ----------------------------------------------------------------------------- */

static nghttp2_session *new_session(struct grpc_call *call)
{
	nghttp2_session_callbacks *callbacks = NULL;
	nghttp2_option *option = h2_option();
	nghttp2_session *session = NULL;

	if (option && nghttp2_session_callbacks_new(&callbacks) == 0) {
		nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
		nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_chunk);
		nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
		if (nghttp2_session_client_new2(&session, callbacks, call, option))
			session = NULL;
		nghttp2_session_callbacks_del(callbacks);
	}
	if (option)
		nghttp2_option_del(option);
	return session;
}

static int submit(struct grpc_call *call, const char *path)
{
	const nghttp2_nv headers[] = {
		h2_header(":method", "POST"),
		h2_header(":scheme", "http"),
		h2_header(":path", path),
		h2_header(":authority", "localhost"),
		h2_header("content-type", "application/grpc"),
		h2_header("te", "trailers"),
	};
	nghttp2_data_provider provider = {.read_callback = on_read};

	if (nghttp2_submit_settings(call->h2.session, NGHTTP2_FLAG_NONE, NULL, 0) ||
	    nghttp2_submit_request(call->h2.session, NULL, headers, H2_COUNT(headers), &provider,
				   NULL) < 0)
		return -ENOMEM;
	return 0;
}

/* Connects without waiting: a Unix socket connects at once, or fails if the server's queue is
 * full. Returns a descriptor or a negative errno. */
static int connect_to(const char *path)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address;
	int error = fd < 0 ? -errno : h2_address(path, &address);

	if (!error && connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		error = -errno;
	if (error && fd >= 0)
		close(fd);
	return error ? error : fd;
}

static int open_call(struct grpc_call *call, int fd, const char *path, unsigned timeout_ms)
{
	int error;

	call->h2.over = on_over;
	call->h2.arg = call;
	call->h2.session = new_session(call);
	if (!call->h2.session)
		return -ENOMEM;
	call->timer = (struct loop_watch){
		.fd = loop_timer(timeout_ms, 0), .ready = on_timeout, .arg = call};
	if (call->timer.fd < 0)
		return call->timer.fd;
	error = submit(call, path);
	if (!error)
		error = loop_add(call->loop, &call->timer);
	if (!error)
		error = h2_open(&call->h2, call->loop, fd);
	return error;
}

/* Frees everything that open_call made before it failed. */
static void undo(struct grpc_call *call)
{
	nghttp2_session_del(call->h2.session);
	if (call->timer.fd > 0)
		close(call->timer.fd); /* closing removes it from the loop */
	bytes_free(&call->request);
	free(call);
}

struct grpc_call *grpc_call(struct loop *loop, const char *socket, const char *path,
			    const struct bytes *message, unsigned timeout_ms, grpc_done *done,
			    void *arg, struct fault *fault)
{
	struct grpc_call *call = calloc(1, sizeof(*call));
	int fd = call ? connect_to(socket) : -ENOMEM, error = fd < 0 ? fd : 0;

	if (!error) {
		call->loop = loop;
		call->status = NO_STATUS;
		call->done = done;
		call->arg = arg;
		h2_message_begin(&call->request);
		bytes_add(&call->request, message->data, message->len);
		h2_message_end(&call->request);
		error = call->request.failed || message->failed
				? -ENOMEM
				: open_call(call, fd, path, timeout_ms);
	}
	if (!error) {
		h2_flush(&call->h2);
		return call;
	}
	if (fd >= 0)
		close(fd);
	if (call)
		undo(call);
	fault_set(fault, error, "cannot call %.100s on %.200s: %s", path, socket, strerror(-error));
	return NULL;
}
