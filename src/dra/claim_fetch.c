/*
 * The status 404 alone does not mean that a claim is gone. A server that does not serve
 * resource.k8s.io/v1, for example during an update, answers each of its paths with 404. If the
 * claim is missing, the answer names it:
 *
 *   {"kind": "Status", "reason": "NotFound", "details": {"kind": "resourceclaims", "name": …}, …}
 */
#include "claim_fetch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "json.h"

#define CLAIM "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s"

static bool is_text(struct json_object *object, const char *path, const char *wanted)
{
	const char *text = json_text_at(object, path);

	return text && strcmp(text, wanted) == 0;
}

static bool says_missing(const struct claim_id *id, const struct bytes *answer)
{
	struct json_object *status = json_read((const char *)answer->data, answer->len);
	bool missing = is_text(status, "kind", "Status") && is_text(status, "reason", "NotFound") &&
		       is_text(status, "details.kind", "resourceclaims") &&
		       is_text(status, "details.name", id->name);

	json_object_put(status);
	return missing;
}

/* 429 and 5xx: the server answers, but not about the claim. */
static int error_of(int status, const struct claim_id *id, const struct bytes *answer)
{
	if (status == 429 || status >= 500)
		return -EIO;
	return status == API_NOT_FOUND && says_missing(id, answer) ? -ENOENT : -EACCES;
}

int claim_fetch(struct api_server *server, const struct claim_id *id, struct bytes *ret_text,
		struct fault *fault)
{
	char path[2 * CLAIM_NAME_LEN];
	int status;

	snprintf(path, sizeof(path), CLAIM, id->namespace, id->name);
	status = api_server_ask(server, "GET", path, NULL, ret_text, fault);
	if (status < 0 || status == API_OK)
		return status < 0 ? -EIO : 0;
	return api_server_refused("GET", path, status, ret_text, error_of(status, id, ret_text),
				  fault);
}
