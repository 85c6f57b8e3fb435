/*
 * The API server, by libcurl: one request at a time, over HTTPS, as the service account of the pod.
 * The token is read again for each request, as the kubelet replaces it before it expires. A request
 * waits for the answer, API_TIMEOUT_MS at most. A server that has let one wait without an answer is
 * taken not to answer for as long again.
 */
#pragma once

#include "bytes.h"
#include "fault.h"

#define API_ACCOUNT    "/var/run/secrets/kubernetes.io/serviceaccount"
#define API_TOKEN      API_ACCOUNT "/token"
#define API_CA         API_ACCOUNT "/ca.crt"
#define API_TIMEOUT_MS 10000
#define API_CONNECT_MS 3000
#define API_ANSWER_MAX ((size_t)4 * 1024 * 1024) /* bytes of an answer */

/* HTTP's. */
enum { API_OK = 200, API_CREATED = 201, API_NOT_FOUND = 404, API_CONFLICT = 409 };

struct api_settings {
	const char *url;   /* https://HOST:PORT; NULL: as the environment of a pod says */
	const char *token; /* the file; it is sent by HTTPS only */
	const char *ca;    /* the file with the certificates that are trusted */
};

struct api_server;

/* NULL with a fault. The settings' strings stay the caller's. */
struct api_server *api_server_open(const struct api_settings *settings, struct fault *fault);
void api_server_close(struct api_server *server); /* also of NULL */

/* Asks, and adds the answer's body to ret_body, in JSON. method: GET, POST or PUT; body: NULL with
 * GET. HTTP's status, or a negative errno with a fault: there was no answer. */
int api_server_ask(struct api_server *server, const char *method, const char *path,
		   const char *body, struct bytes *ret_body, struct fault *fault);

/* The fault for an answer that is none of the expected: what was asked, the status, and the
 * server's message where it has one. Returns error. */
int api_server_refused(const char *method, const char *path, int status, const struct bytes *body,
		       int error, struct fault *fault);
