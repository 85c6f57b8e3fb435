/*
 * The answer is written once and serves all requests until server_renew, so a client that asks
 * all the time costs no more than sending. libmicrohttpd ends connections that are silent, but
 * a connection that sends a byte now and then would live for ever. So a list has all
 * connections, oldest first, with the time at which each began, and server_tick shuts old ones
 * down. libmicrohttpd then sees the end of the connection and frees it.
 */
#include "server.h"

#include <errno.h>
#include <limits.h>
#include <microhttpd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"

#define CLASSES             6
#define CLIENT_MEMORY_BYTES (16 * 1024) /* per connection; a request's lines must fit */
#define CONTENT_TYPE        "text/plain; version=0.0.4; charset=utf-8"

struct connection {
	struct connection *next, *previous;
	struct MHD_Connection *handle;
	uint64_t began_ns;
};

struct server {
	struct MHD_Daemon *daemon;
	struct MHD_Response *metrics; /* NULL: the next request has it written */
	void (*write)(struct text *text, void *arg);
	void *arg;
	char *token;
	uint64_t timeout_ns;
	uint64_t answers[CLASSES];
	struct connection
		ring; /* head of a ring: its next is the oldest, its previous the newest */
};

/* -- answers ----------------------------------------------------------------------------------- */

static enum MHD_Result answer(struct server *server, struct MHD_Connection *connection,
			      unsigned status, struct MHD_Response *response)
{
	enum MHD_Result result =
		response ? MHD_queue_response(connection, status, response) : MHD_NO;

	if (result == MHD_YES)
		server->answers[status / 100]++;
	return result;
}

/* Answers with one line of text, and with a header if name is not NULL. */
static enum MHD_Result answer_line(struct server *server, struct MHD_Connection *connection,
				   unsigned status, const char *line, const char *name,
				   const char *value)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(
		strlen(line), (void *)(uintptr_t)line, MHD_RESPMEM_PERSISTENT);
	enum MHD_Result result;

	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain");
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
	if (name)
		MHD_add_response_header(response, name, value);
	result = answer(server, connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static struct MHD_Response *make_metrics(struct server *server)
{
	struct MHD_Response *response = NULL;
	struct text text = {0};

	server->write(&text, server->arg);
	if (!text.failed && text.bytes)
		response = MHD_create_response_from_buffer(text.length, text.bytes,
							   MHD_RESPMEM_MUST_FREE);
	if (!response) {
		text_free(&text);
		return NULL;
	}
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, CONTENT_TYPE);
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
	return response;
}

/* Compares the whole token even after a difference, so that the time says nothing about the
 * token. */
static bool is_token(const char *token, const char *given)
{
	size_t len = strlen(token), given_len = strlen(given);
	unsigned differs = len != given_len;

	for (size_t i = 0; i < len; i++)
		differs |= (unsigned)(token[i] ^ given[given_len ? i % given_len : 0]);
	return differs == 0;
}

static bool is_permitted(const struct server *server, struct MHD_Connection *connection)
{
	const char *given = MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
							MHD_HTTP_HEADER_AUTHORIZATION);
	const char *bearer = "Bearer ";

	if (!server->token)
		return true;
	return given && strncasecmp(given, bearer, strlen(bearer)) == 0 &&
	       is_token(server->token, given + strlen(bearer));
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_size, void **request)
{
	struct server *server = arg;

	(void)version, (void)upload, (void)upload_size, (void)request;
	if (!is_permitted(server, connection))
		return answer_line(server, connection, MHD_HTTP_UNAUTHORIZED,
				   "a bearer token is needed (vgpud(8))\n",
				   MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return answer_line(server, connection, MHD_HTTP_METHOD_NOT_ALLOWED,
				   "vgpud only answers to GET and HEAD\n", MHD_HTTP_HEADER_ALLOW,
				   "GET, HEAD");
	if (strcmp(url, "/metrics") != 0)
		return answer_line(server, connection, MHD_HTTP_NOT_FOUND,
				   "there is nothing but /metrics here\n", NULL, NULL);
	if (!server->metrics)
		server->metrics = make_metrics(server);
	if (!server->metrics)
		return answer_line(server, connection, MHD_HTTP_INTERNAL_SERVER_ERROR,
				   "vgpud has no memory for an answer\n", NULL, NULL);
	return answer(server, connection, MHD_HTTP_OK, server->metrics);
}

void server_renew(struct server *server)
{
	if (server->metrics)
		MHD_destroy_response(server->metrics); /* answers in progress keep a reference */
	server->metrics = NULL;
}

uint64_t server_answers(const struct server *server, unsigned class)
{
	return server && class < CLASSES ? server->answers[class] : 0;
}

/* -- connections ------------------------------------------------------------------------------- */

static void began(struct server *server, struct MHD_Connection *handle, void **context)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	*context = connection;
	if (!connection)
		return;
	connection->handle = handle;
	connection->began_ns = clock_now_ns();
	connection->next = &server->ring;
	connection->previous = server->ring.previous;
	connection->previous->next = connection;
	server->ring.previous = connection;
}

static void ended(void **context)
{
	struct connection *connection = *context;

	*context = NULL;
	if (!connection)
		return;
	connection->previous->next = connection->next;
	connection->next->previous = connection->previous;
	free(connection);
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **context,
			  enum MHD_ConnectionNotificationCode code)
{
	if (code == MHD_CONNECTION_NOTIFY_STARTED)
		began(arg, connection, context);
	else
		ended(context);
}

static void shut_down(const struct connection *connection)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection->handle, MHD_CONNECTION_INFO_CONNECTION_FD);

	if (info)
		shutdown(info->connect_fd, SHUT_RDWR);
}

void server_tick(struct server *server)
{
	uint64_t now_ns = clock_now_ns();

	for (struct connection *at = server->ring.next;
	     at != &server->ring && now_ns - at->began_ns >= server->timeout_ns; at = at->next)
		shut_down(at);
	server_run(server);
}

/* -- the server -------------------------------------------------------------------------------- */

int server_fd(const struct server *server)
{
	return MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
}

int server_wait_ms(const struct server *server)
{
	MHD_UNSIGNED_LONG_LONG wait_ms;

	if (MHD_get_timeout(server->daemon, &wait_ms) != MHD_YES)
		return -1;
	return wait_ms < INT_MAX ? (int)wait_ms : INT_MAX;
}

void server_run(struct server *server)
{
	MHD_run(server->daemon);
}

static void free_server(struct server *server)
{
	if (server->metrics)
		MHD_destroy_response(server->metrics);
	free(server->token);
	free(server);
}

void server_stop(struct server *server)
{
	if (!server)
		return;
	MHD_stop_daemon(server->daemon);
	free_server(server);
}

/* Errors of clients are not logged. */
static void ignore_log(void *arg, const char *format, va_list args)
{
	(void)arg, (void)format, (void)args;
}

static struct MHD_Daemon *start(struct server *server, const struct server_settings *settings)
{
	bool tls = settings->certificate && settings->key;
	struct MHD_OptionItem tls_options[] = {
		{MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)settings->certificate},
		{MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)settings->key},
		{MHD_OPTION_END, 0, NULL},
	};
	struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};

	return MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_ERROR_LOG | (tls ? MHD_USE_TLS : 0), 0,
				NULL, NULL, on_request, server, MHD_OPTION_EXTERNAL_LOGGER,
				ignore_log, NULL, MHD_OPTION_LISTEN_SOCKET, settings->listener,
				MHD_OPTION_CONNECTION_LIMIT, settings->connections,
				MHD_OPTION_PER_IP_CONNECTION_LIMIT, settings->client_connections,
				MHD_OPTION_CONNECTION_TIMEOUT, settings->timeout_s,
				MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CLIENT_MEMORY_BYTES,
				MHD_OPTION_NOTIFY_CONNECTION, on_connection, server,
				MHD_OPTION_ARRAY, tls ? tls_options : none, MHD_OPTION_END);
}

struct server *server_start(const struct server_settings *settings, struct fault *fault)
{
	struct server *server = calloc(1, sizeof(*server));

	if (server) {
		server->ring.next = server->ring.previous = &server->ring;
		server->write = settings->write;
		server->arg = settings->arg;
		server->timeout_ns = settings->timeout_s * NS_PER_S;
		server->token = settings->token ? strdup(settings->token) : NULL;
		if (!settings->token || server->token)
			server->daemon = start(server, settings);
	}
	if (server && server->daemon)
		return server;
	close(settings->listener);
	if (server)
		free_server(server);
	fault_set(fault, -EIO, "the HTTP server does not start%s",
		  settings->certificate
			  ? ": the certificate and the key do not match, or are not in PEM; see "
			    "tls_certificate and tls_key in vgpud.conf"
			  : ": libmicrohttpd refuses its settings");
	return NULL;
}
