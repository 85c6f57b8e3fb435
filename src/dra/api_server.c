/*
 * libcurl follows no redirects and uses no proxy, as the token is for the API server alone. All
 * requests use one handle, so that they share a connection.
 *
 * While a server hangs, a request waits for API_TIMEOUT_MS, and the whole program with it. So
 * after a request without an answer, no other request is sent for as long as that request
 * waited.
 */
#include "api_server.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "env.h"
#include "json.h"

#define URL_LEN   1024
#define TOKEN_LEN 8192

struct api_server {
	CURL *curl;
	char url[URL_LEN];
	const char *token, *ca;
	/* the URL is HTTPS, so the server has a certificate and gets the token */
	bool trusted;
	char error[CURL_ERROR_SIZE]; /* of the last request */
	uint64_t silent_until_ns;    /* no request is sent before (CLOCK_MONOTONIC) */
};

/* -- opening ----------------------------------------------------------------------------------- */

static int find_url(const char *given, char ret_url[URL_LEN], struct fault *fault)
{
	const char *host = env_get("KUBERNETES_SERVICE_HOST");
	const char *port = env_get("KUBERNETES_SERVICE_PORT");
	bool is_v6 = host && strchr(host, ':');
	int len;

	if (given)
		len = snprintf(ret_url, URL_LEN, "%s", given);
	else if (host && port)
		len = snprintf(ret_url, URL_LEN, "https://%s%s%s:%s", is_v6 ? "[" : "", host,
			       is_v6 ? "]" : "", port);
	else
		return fault_set(
			fault, -EINVAL,
			"vgpu-dra does not run in a pod, so it needs the API server's URL, as in "
			"--server https://10.96.0.1:443");
	if (len >= URL_LEN ||
	    (strncmp(ret_url, "https://", 8) != 0 && strncmp(ret_url, "http://", 7) != 0))
		return fault_set(fault, -EINVAL, "\"%.200s\" is no URL of an API server", ret_url);
	return 0;
}

struct api_server *api_server_open(const struct api_settings *settings, struct fault *fault)
{
	struct api_server *server = calloc(1, sizeof(*server));

	if (!server || curl_global_init(CURL_GLOBAL_DEFAULT) ||
	    !(server->curl = curl_easy_init())) {
		free(server);
		fault_set(fault, -ENOMEM, "libcurl does not start");
		return NULL;
	}
	server->token = settings->token;
	server->ca = settings->ca;
	if (find_url(settings->url, server->url, fault)) {
		api_server_close(server);
		return NULL;
	}
	server->trusted = strncmp(server->url, "https://", 8) == 0;
	return server;
}

void api_server_close(struct api_server *server)
{
	if (!server)
		return;
	curl_easy_cleanup(server->curl);
	free(server);
}

/* -- a request --------------------------------------------------------------------------------- */

static size_t on_data(char *data, size_t size, size_t count, void *arg)
{
	struct bytes *body = arg;
	size_t len = size * count;

	if (body->len + len > API_ANSWER_MAX)
		return 0;
	bytes_add(body, data, len);
	return body->failed ? 0 : len;
}

/* Reads the token, and writes "Authorization: Bearer TOKEN" to line. */
static int read_token(const char *path, char line[TOKEN_LEN], struct fault *fault)
{
	size_t len = (size_t)snprintf(line, TOKEN_LEN, "Authorization: Bearer ");
	FILE *file = fopen(path, "re");

	if (!file)
		return fault_set(fault, -errno, "cannot read the token %.200s: %s", path,
				 strerror(errno));
	len += fread(line + len, 1, TOKEN_LEN - 1 - len, file);
	fclose(file);
	line[len] = '\0';
	line[strcspn(line, "\r\n")] = '\0';
	return 0;
}

static int make_headers(const struct api_server *server, struct curl_slist **ret_headers,
			struct fault *fault)
{
	char token[TOKEN_LEN] = "";
	const char *const lines[] = {"Accept: application/json", "Content-Type: application/json",
				     "Expect:", token};
	int error = server->trusted ? read_token(server->token, token, fault) : 0;
	struct curl_slist *headers = NULL;

	for (size_t i = 0; !error && i < sizeof(lines) / sizeof(lines[0]) && *lines[i]; i++) {
		struct curl_slist *more = curl_slist_append(headers, lines[i]);

		if (!more)
			error = fault_set(fault, -ENOMEM, "there is no memory for a request");
		else
			headers = more;
	}
	if (error)
		curl_slist_free_all(headers);
	else
		*ret_headers = headers;
	return error;
}

static void set_request(struct api_server *server, const char *method, const char *url,
			const char *body, struct bytes *ret_body)
{
	CURL *curl = server->curl;

	curl_easy_reset(curl);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, server->error);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_CAINFO, server->ca);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)API_CONNECT_MS);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)API_TIMEOUT_MS);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, ret_body);
	if (!body)
		return;
	curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
	curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
}

static int no_answer(const struct api_server *server, struct fault *fault)
{
	return fault_set(fault, -EIO, "the API server at %.100s does not answer: %.200s",
			 server->url, server->error);
}

int api_server_ask(struct api_server *server, const char *method, const char *path,
		   const char *body, struct bytes *ret_body, struct fault *fault)
{
	char url[2 * URL_LEN];
	uint64_t began_ns = clock_now_ns(), ended_ns;
	struct curl_slist *headers;
	CURLcode code;
	long status = 0;
	int error;

	if (began_ns < server->silent_until_ns)
		return no_answer(server, fault);
	error = make_headers(server, &headers, fault);
	if (error)
		return error;
	snprintf(url, sizeof(url), "%s%s", server->url, path);
	set_request(server, method, url, body, ret_body);
	curl_easy_setopt(server->curl, CURLOPT_HTTPHEADER, headers);
	server->error[0] = '\0';
	code = curl_easy_perform(server->curl);
	curl_easy_getinfo(server->curl, CURLINFO_RESPONSE_CODE, &status);
	curl_slist_free_all(headers);
	if (code == CURLE_OK)
		return (int)status;
	if (!*server->error)
		snprintf(server->error, sizeof(server->error), "%s", curl_easy_strerror(code));
	ended_ns = clock_now_ns();
	server->silent_until_ns = ended_ns + (ended_ns - began_ns);
	return no_answer(server, fault);
}

int api_server_refused(const char *method, const char *path, int status, const struct bytes *body,
		       int error, struct fault *fault)
{
	struct json_object *object = json_read((const char *)body->data, body->len);
	const char *message = json_text_at(object, "message");

	fault_set(fault, error, "the API server answers %s %.150s with %d%s%.200s", method, path,
		  status, message ? ": " : "", message ? message : "");
	json_object_put(object);
	return error;
}
