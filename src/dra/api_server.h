/*
 * Requests to the API server, by libcurl: one at a time, over HTTPS, as the service account of
 * the pod. The token is read again for each request, as the kubelet replaces it before it
 * expires. A request waits for its answer, API_TIMEOUT_MS at most. After a request without an
 * answer, further requests fail at once for as long as that request waited.
 */
#pragma once

#include "bytes.h"
#include "fault.h"

#define API_ACCOUNT    "/var/run/secrets/kubernetes.io/serviceaccount"
#define API_TOKEN      API_ACCOUNT "/token"
#define API_CA         API_ACCOUNT "/ca.crt"
#define API_TIMEOUT_MS 10000                     /* for a whole request */
#define API_CONNECT_MS 3000                      /* for the connection alone */
#define API_ANSWER_MAX ((size_t)4 * 1024 * 1024) /* bytes of an answer's body */

/* Statuses of HTTP. */
enum { API_OK = 200, API_CREATED = 201, API_NOT_FOUND = 404, API_CONFLICT = 409 };

struct api_settings {
	const char *url;   /* https://HOST:PORT; NULL: from the environment of a pod */
	const char *token; /* path of the token's file; a token is sent by HTTPS only */
	const char *ca;    /* path of the file with trusted certificates */
};

struct api_server;

/* Prepares requests; it sends none. Returns NULL with a fault on failure. The settings' strings
 * must live as long as the result. */
struct api_server *api_server_open(const struct api_settings *settings, struct fault *fault);
void api_server_close(struct api_server *server); /* also of NULL */

/* Sends a request, and adds the answer's body, JSON, to ret_body. method: GET, POST or PUT.
 * body: NULL with GET. Returns HTTP's status; or a negative errno with a fault, and there was
 * no answer. */
int api_server_ask(struct api_server *server, const char *method, const char *path,
		   const char *body, struct bytes *ret_body, struct fault *fault);

/* Fills fault for an answer with an unexpected status: the request, the status, and the
 * server's message if it has one. Returns error. */
int api_server_refused(const char *method, const char *path, int status, const struct bytes *body,
		       int error, struct fault *fault);
