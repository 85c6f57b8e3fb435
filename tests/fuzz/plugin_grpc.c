/*
 * Fuzzes the gRPC server: the input is what a client sends, after its preface. The server is the
 * file itself, over no socket; what it would send is dropped.
 */
#include "grpc_server.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum grpc_status echo(void *arg, struct pb_message request, struct bytes *ret_message,
			     struct fault *fault)
{
	size_t len = (size_t)(request.end - request.at);

	(void)arg;
	if (len && *request.at == 'x') {
		fault_set(fault, -EINVAL, "a reason, 100 %% and \"more\"");
		return GRPC_INVALID_ARGUMENT;
	}
	bytes_add(ret_message, request.at, len);
	return GRPC_OK;
}

static const struct grpc_method methods[] = {
	{"/u", echo, false},
	{"/s", echo, true},
	{NULL, NULL, false},
};

static void drain(struct connection *connection)
{
	const uint8_t *out;

	while (nghttp2_session_mem_send(connection->h2.session, &out) > 0)
		;
}

static void renew(const struct connection *connection)
{
	for (struct stream *stream = connection->streams; stream; stream = stream->next)
		if (stream->method && stream->method->streams) {
			stream->renew = true;
			nghttp2_session_resume_data(connection->h2.session, stream->id);
		}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct grpc_server server = {.methods = methods};
	struct connection connection = {.server = &server};
	static const uint8_t preface[] = NGHTTP2_CLIENT_MAGIC "\0\0\0\4\0\0\0\0";

	connection.h2.session = new_session(&connection);
	if (!connection.h2.session)
		return 0;
	nghttp2_session_mem_recv(connection.h2.session, preface, sizeof(preface));
	/* In two parts, with a change in between. */
	if (nghttp2_session_mem_recv(connection.h2.session, data, size / 2) >= 0) {
		drain(&connection);
		renew(&connection);
		nghttp2_session_mem_recv(connection.h2.session, data + size / 2, size - size / 2);
		drain(&connection);
	}
	nghttp2_session_del(connection.h2.session);
	while (connection.streams) {
		struct stream *stream = connection.streams;

		connection.streams = stream->next;
		free_stream(stream);
	}
	return 0;
}
