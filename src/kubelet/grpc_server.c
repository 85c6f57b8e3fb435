/*
 * A connection has a list of its streams, and the server a list of its connections. A request
 * is kept until the client's side of its stream ends. The method then answers it at once.
 *
 * A stream of messages holds one message at a time. The next is made from the present state
 * after that one is sent. So a client that reads slowly costs one message, and always gets the
 * latest state.
 *
 * There are CONNECTIONS_MAX connections at most. A further one replaces the oldest connection
 * without a stream of messages. The kubelet's connection has such a stream, so idle connections
 * never lock the kubelet out.
 *
 * A connection that cannot be accepted, as descriptors have run out, stays in the socket's queue,
 * and the socket stays ready. So the loop does not watch the socket for the next AGAIN_MS.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "grpc.h"
#include "h2.h"

#define BACKLOG         64
#define CONNECTIONS_MAX 32
#define AGAIN_MS        100
#define STREAMS_MAX     32 /* at once, of one connection */
#define PATH_LEN        128

struct stream {
	struct stream *next;
	struct connection *connection;
	int32_t id;
	char path[PATH_LEN];
	const struct grpc_method *method; /* NULL: the request is not complete yet */
	struct bytes request;             /* framed, as received */
	struct bytes answer;              /* framed */
	size_t sent;                      /* bytes of the answer that were sent */
	bool renew;                       /* another message must follow */
};

struct connection {
	struct connection *next;
	struct grpc_server *server;
	struct h2 h2;
	struct stream *streams;
};

struct grpc_server {
	struct loop *loop;
	struct loop_watch watch; /* its descriptor is the listening socket */
	struct loop_watch again; /* the timer that ends a pause of watch */
	struct sockaddr_un address;
	dev_t device; /* of the socket's file */
	ino_t inode;
	const struct grpc_method *methods;
	void *arg;
	struct connection *connections; /* the newest first */
	unsigned connection_count;
};

/* -- answers ----------------------------------------------------------------------------------- */

/* Encodes a status message as gRPC demands: printable ASCII, and %XX for other bytes. */
static void encode(const char *text, char *buf, size_t len)
{
	size_t at = 0;

	for (; *text && at + 4 <= len; text++) {
		unsigned char c = (unsigned char)*text;

		if (c >= ' ' && c <= '~' && c != '%')
			buf[at++] = (char)c;
		else
			at += (size_t)snprintf(buf + at, len - at, "%%%02X", c);
	}
	buf[at] = '\0';
}

/* Answers with a status and without a message. */
static void refuse(struct stream *stream, enum grpc_status status, const char *why)
{
	char number[16], message[2 * sizeof(((struct fault *)0)->text)];
	nghttp2_nv headers[] = {
		h2_header(":status", "200"),
		h2_header("content-type", "application/grpc"),
		h2_header("grpc-status", ""),
		h2_header("grpc-message", ""),
	};

	snprintf(number, sizeof(number), "%d", (int)status);
	encode(why, message, sizeof(message));
	headers[2] = h2_header("grpc-status", number);
	headers[3] = h2_header("grpc-message", message);
	nghttp2_submit_headers(stream->connection->h2.session, NGHTTP2_FLAG_END_STREAM, stream->id,
			       NULL, headers, H2_COUNT(headers), NULL);
}

/* Makes the method's next message in stream->answer. */
static enum grpc_status make_answer(struct stream *stream, struct fault *fault)
{
	struct pb_message request;
	enum grpc_status status;

	if (!h2_message_take(&stream->request, &request)) {
		fault_set(fault, -EBADMSG, "the request is not one message without compression");
		return GRPC_UNIMPLEMENTED;
	}
	stream->renew = false;
	stream->sent = 0;
	h2_message_begin(&stream->answer);
	status = stream->method->answer(stream->connection->server->arg, request, &stream->answer,
					fault);
	h2_message_end(&stream->answer);
	if (status == GRPC_OK && stream->answer.failed) {
		fault_set(fault, -ENOMEM, "there is no memory for an answer");
		status = GRPC_RESOURCE_EXHAUSTED;
	}
	return status;
}

/* Gives libnghttp2 the next bytes of the answer. */
static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t len,
		       uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	static const char ok[] = "0";
	nghttp2_nv trailers[] = {h2_header("grpc-status", ok)};
	struct stream *stream = source->ptr;
	struct fault fault = {""};

	(void)arg;
	if (stream->sent == stream->answer.len && stream->method->streams) {
		if (!stream->renew)
			return NGHTTP2_ERR_DEFERRED;
		if (make_answer(stream, &fault) != GRPC_OK)
			return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	}
	len = h2_copy(&stream->answer, &stream->sent, buf, len);
	if (stream->sent == stream->answer.len && !stream->method->streams) {
		*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
		nghttp2_submit_trailer(session, id, trailers, H2_COUNT(trailers));
	}
	return (ssize_t)len;
}

static const struct grpc_method *find_method(const struct grpc_server *server, const char *path)
{
	for (const struct grpc_method *method = server->methods; method->path; method++)
		if (strcmp(method->path, path) == 0)
			return method;
	return NULL;
}

static void answer(struct stream *stream)
{
	const nghttp2_nv headers[] = {
		h2_header(":status", "200"),
		h2_header("content-type", "application/grpc"),
	};
	nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = on_read};
	struct fault fault = {""};
	enum grpc_status status;

	stream->method = find_method(stream->connection->server, stream->path);
	if (!stream->method) {
		refuse(stream, GRPC_UNIMPLEMENTED, "there is no such method");
		return;
	}
	status = make_answer(stream, &fault);
	if (status != GRPC_OK)
		refuse(stream, status, fault.text);
	else
		nghttp2_submit_response(stream->connection->h2.session, stream->id, headers,
					H2_COUNT(headers), &provider);
}

/* -- requests ---------------------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct connection *connection = arg;
	struct stream *stream;

	if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	stream = calloc(1, sizeof(*stream));
	if (!stream)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	stream->connection = connection;
	stream->id = frame->hd.stream_id;
	stream->next = connection->streams;
	connection->streams = stream;
	nghttp2_session_set_stream_user_data(session, stream->id, stream);
	return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
		     void *arg)
{
	struct stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	const char *wanted = ":path";

	(void)flags, (void)arg;
	if (stream && name_len == strlen(wanted) && memcmp(name, wanted, name_len) == 0 &&
	    value_len < sizeof(stream->path)) {
		memcpy(stream->path, value, value_len);
		stream->path[value_len] = '\0';
	}
	return 0;
}

static int on_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
		    size_t len, void *arg)
{
	struct stream *stream = nghttp2_session_get_stream_user_data(session, id);

	(void)flags, (void)arg;
	if (!stream || stream->method)
		return 0;
	if (stream->request.len + len > GRPC_MESSAGE_MAX + H2_PREFIX_LEN)
		return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id,
						 NGHTTP2_ENHANCE_YOUR_CALM);
	bytes_add(&stream->request, data, len);
	return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

	(void)arg;
	if (stream && !stream->method && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) &&
	    (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA))
		answer(stream);
	return 0;
}

static void free_stream(struct stream *stream)
{
	bytes_free(&stream->request);
	bytes_free(&stream->answer);
	free(stream);
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t error, void *arg)
{
	struct stream *stream = nghttp2_session_get_stream_user_data(session, id);
	struct connection *connection = arg;

	(void)error;
	for (struct stream **at = &connection->streams; stream && *at; at = &(*at)->next)
		if (*at == stream) {
			*at = stream->next;
			free_stream(stream);
			break;
		}
	return 0;
}

/* -- connections ------------------------------------------------------------------------------- */

static nghttp2_session *new_session(struct connection *connection)
{
	const nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MAX},
	};
	nghttp2_session_callbacks *callbacks = NULL;
	nghttp2_option *option = h2_option();
	nghttp2_session *session = NULL;

	if (option && nghttp2_session_callbacks_new(&callbacks) == 0) {
		nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks,
									on_begin_headers);
		nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
		nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_chunk);
		nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
		nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
		if (nghttp2_session_server_new2(&session, callbacks, connection, option))
			session = NULL;
		nghttp2_session_callbacks_del(callbacks);
	}
	if (option)
		nghttp2_option_del(option);
	if (session)
		nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, H2_COUNT(settings));
	return session;
}

static void free_connection(struct connection *connection)
{
	h2_close(&connection->h2);
	while (connection->streams) {
		struct stream *stream = connection->streams;

		connection->streams = stream->next;
		free_stream(stream);
	}
	free(connection);
}

static void end_connection(void *arg)
{
	struct connection *connection = arg;
	struct grpc_server *server = connection->server;
	struct connection **at = &server->connections;

	while (*at != connection)
		at = &(*at)->next;
	*at = connection->next;
	server->connection_count--;
	free_connection(connection);
}

static unsigned count_streams(const struct connection *connection)
{
	unsigned count = 0;

	for (const struct stream *stream = connection->streams; stream; stream = stream->next)
		count += stream->method && stream->method->streams;
	return count;
}

/* Ends the oldest connection without a stream of messages. Returns false if there is none. */
static bool make_room(struct grpc_server *server)
{
	struct connection *oldest = NULL;

	for (struct connection *at = server->connections; at; at = at->next)
		if (count_streams(at) == 0)
			oldest = at;
	if (oldest)
		end_connection(oldest);
	return oldest != NULL;
}

static void begin_connection(struct grpc_server *server, int fd)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	if (!connection) {
		close(fd);
		return;
	}
	connection->server = server;
	connection->h2.over = end_connection;
	connection->h2.arg = connection;
	connection->h2.session = new_session(connection);
	if (!connection->h2.session || h2_open(&connection->h2, server->loop, fd) < 0) {
		nghttp2_session_del(connection->h2.session);
		close(fd);
		free(connection);
		return;
	}
	connection->next = server->connections;
	server->connections = connection;
	server->connection_count++;
	h2_flush(&connection->h2);
}

static void pause_accepting(struct grpc_server *server)
{
	loop_remove(server->loop, &server->watch);
	loop_timer_set(server->again.fd, AGAIN_MS);
}

static void on_again(void *arg, uint32_t events)
{
	struct grpc_server *server = arg;

	(void)events;
	loop_timer_read(server->again.fd);
	if (loop_add(server->loop, &server->watch) < 0)
		loop_timer_set(server->again.fd, AGAIN_MS);
}

static void on_connection(void *arg, uint32_t events)
{
	struct grpc_server *server = arg;
	int fd = accept4(server->watch.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	if (fd < 0)
		pause_accepting(server);
	else if (server->connection_count < CONNECTIONS_MAX || make_room(server))
		begin_connection(server, fd);
	else
		close(fd);
}

/* -- the server -------------------------------------------------------------------------------- */

/* Makes the socket and listens. The umask gives the socket its mode from the start, so that no
 * other user can connect in between. */
static int listen_at(struct grpc_server *server)
{
	const char *path = server->address.sun_path;
	mode_t before = umask(0177);
	struct stat st;
	int error = 0;

	if ((unlink(path) < 0 && errno != ENOENT) ||
	    bind(server->watch.fd, (struct sockaddr *)&server->address, sizeof(server->address)) <
		    0 ||
	    listen(server->watch.fd, BACKLOG) < 0 || stat(path, &st) < 0)
		error = -errno;
	umask(before);
	if (error)
		return error;
	server->device = st.st_dev;
	server->inode = st.st_ino;
	return loop_add(server->loop, &server->watch);
}

/* Opens the socket and the timer, and listens. The caller closes the descriptors that are there
 * after a failure. */
static int open_server(struct grpc_server *server)
{
	int error;

	server->again = (struct loop_watch){loop_timer(0, 0), on_again, server};
	if (server->again.fd < 0)
		return server->again.fd;
	error = loop_add(server->loop, &server->again);
	if (error)
		return error;
	server->watch = (struct loop_watch){
		.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
		.ready = on_connection,
		.arg = server,
	};
	return server->watch.fd < 0 ? -errno : listen_at(server);
}

static void close_watch(struct loop *loop, struct loop_watch *watch)
{
	if (watch->fd < 0)
		return;
	loop_remove(loop, watch);
	close(watch->fd);
}

struct grpc_server *grpc_serve(struct loop *loop, const char *path,
			       const struct grpc_method *methods, void *arg, struct fault *fault)
{
	struct grpc_server *server = calloc(1, sizeof(*server));
	int error = server ? h2_address(path, &server->address) : -ENOMEM;

	if (!error) {
		server->loop = loop;
		server->methods = methods;
		server->arg = arg;
		server->watch.fd = server->again.fd = -1;
		error = open_server(server);
		if (!error)
			return server;
		close_watch(loop, &server->watch);
		close_watch(loop, &server->again);
	}
	free(server);
	fault_set(fault, error, "cannot listen on %.200s: %s", path, strerror(-error));
	return NULL;
}

bool grpc_server_is_there(const struct grpc_server *server)
{
	struct stat st;

	return stat(server->address.sun_path, &st) == 0 && st.st_dev == server->device &&
	       st.st_ino == server->inode;
}

void grpc_server_stop(struct grpc_server *server)
{
	if (!server)
		return;
	if (grpc_server_is_there(server))
		unlink(server->address.sun_path);
	while (server->connections) {
		struct connection *connection = server->connections;

		server->connections = connection->next;
		free_connection(connection);
	}
	close_watch(server->loop, &server->watch);
	close_watch(server->loop, &server->again);
	free(server);
}

void grpc_server_renew(struct grpc_server *server)
{
	for (struct connection *at = server->connections; at; at = at->next) {
		for (struct stream *stream = at->streams; stream; stream = stream->next)
			if (stream->method && stream->method->streams) {
				stream->renew = true;
				nghttp2_session_resume_data(at->h2.session, stream->id);
			}
		h2_flush(&at->h2);
	}
}

unsigned grpc_server_streams(const struct grpc_server *server)
{
	unsigned count = 0;

	for (const struct connection *at = server->connections; at; at = at->next)
		count += count_streams(at);
	return count;
}
