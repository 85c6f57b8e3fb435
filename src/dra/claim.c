/*
 * The strings of a claim end up in paths, in files and in messages that must be UTF-8. So each
 * is accepted only in the form that the API demands: DNS labels and subdomains.
 *
 * A capacity of 0 is refused, as 0 means "no limit" in a policy. A result with adminAccess is
 * refused too: it consumes nothing, so it would be a GPU without limits alongside the shares of
 * other claims.
 */
#include "claim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "quantity.h"

#define RESULTS "status.allocation.devices.results"

/* Whether text has 1 to room - 1 characters: lower-case letters, digits and "-", and "." if
 * dots, with a letter or a digit at both ends. */
static bool is_dns(const char *text, size_t room, bool dots)
{
	static const char ends[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	size_t len = text ? strlen(text) : 0;

	if (len == 0 || len >= room || !strchr(ends, text[0]) || !strchr(ends, text[len - 1]))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!strchr(ends, text[i]) && text[i] != '-' && !(dots && text[i] == '.'))
			return false;
	return !strstr(text, "..");
}

bool claim_id_is_good(const struct claim_id *id)
{
	return is_dns(id->namespace, CLAIM_LABEL_LEN, false) &&
	       is_dns(id->name, CLAIM_NAME_LEN, true) &&
	       is_dns(id->uid, CLAIM_LABEL_LEN - 16, false);
}

/* -- a result ---------------------------------------------------------------------------------- */

/* Copies the part of a request's name before a "/", after which a subrequest's name stands. */
static bool copy_request(const char *request, char ret_request[CLAIM_LABEL_LEN])
{
	char name[CLAIM_LABEL_LEN];

	if (!request)
		return false;
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(request, "/"), request);
	memcpy(ret_request, name, sizeof(name));
	return strcspn(request, "/") < sizeof(name) && is_dns(name, sizeof(name), false);
}

/* Reads how much of a capacity the claim consumes, 1 to max; 0 if the result does not say. The
 * capacity's name may have a prefix: the driver's name and a "/". */
static int read_capacity(struct json_object *result, const char *driver, const char *name,
			 uint64_t max, uint64_t *ret_value, struct fault *fault)
{
	char whole[CLAIM_LABEL_LEN + 32];
	struct json_object *consumed = json_at(result, "consumedCapacity"), *found;
	const char *text;
	uint64_t value;

	*ret_value = 0;
	snprintf(whole, sizeof(whole), "%s/%s", driver, name);
	if (consumed && !json_object_is_type(consumed, json_type_object))
		return fault_set(fault, -EINVAL, "the claim's consumedCapacity is no object");
	if (!consumed || (!json_object_object_get_ex(consumed, name, &found) &&
			  !json_object_object_get_ex(consumed, whole, &found)))
		return 0;
	text = json_text(found);
	if (!text || quantity_parse(text, &value) || value == 0 || value > max)
		return fault_set(
			fault, -EINVAL,
			"the claim's consumedCapacity of %s is not a quantity that a GPU can have: "
			"ask for at least 1%s",
			name, max == 100 ? ", and at most 100" : "");
	*ret_value = value;
	return 0;
}

/* Any value but a missing one and false counts as true. */
static bool may_be_true(struct json_object *value)
{
	return value &&
	       !(json_object_is_type(value, json_type_boolean) && !json_object_get_boolean(value));
}

static int read_result(struct json_object *result, const char *driver, struct claim_device *device,
		       struct fault *fault)
{
	const char *pool = json_text_at(result, "pool"), *name = json_text_at(result, "device");
	struct json_object *share = json_at(result, "shareID");
	uint64_t cores;
	int error;

	if (may_be_true(json_at(result, "adminAccess")))
		return fault_set(fault, -EINVAL,
				 "the claim has adminAccess, which would be a GPU without limits: "
				 "remove adminAccess from its request");
	if (!copy_request(json_text_at(result, "request"), device->request) ||
	    !is_dns(pool, CLAIM_NAME_LEN, true) || !is_dns(name, CLAIM_LABEL_LEN, false) ||
	    (share && !is_dns(json_text_at(result, "shareID"), CLAIM_LABEL_LEN, false)))
		return fault_set(fault, -EINVAL,
				 "the claim's allocation has a name that is no DNS name");
	snprintf(device->pool, sizeof(device->pool), "%s", pool);
	snprintf(device->device, sizeof(device->device), "%s", name);
	if (share)
		snprintf(device->share, sizeof(device->share), "%s", json_object_get_string(share));
	error = read_capacity(result, driver, "memory", INT64_MAX, &device->memory_bytes, fault);
	if (!error)
		error = read_capacity(result, driver, "cores", 100, &cores, fault);
	if (!error)
		device->cores_pct = (unsigned)cores;
	return error;
}

/* -- the claim --------------------------------------------------------------------------------- */

static bool is_same(const char *text, const char *wanted)
{
	return text && strcmp(text, wanted) == 0;
}

static int read_results(struct json_object *results, const char *driver, struct claim *claim,
			struct fault *fault)
{
	int error = 0;

	for (size_t i = 0; !error && i < json_object_array_length(results); i++) {
		struct json_object *result = json_object_array_get_idx(results, i);

		if (!is_same(json_text_at(result, "driver"), driver))
			continue;
		if (claim->count == CLAIM_DEVICES_MAX)
			return fault_set(fault, -EINVAL, "the claim has more than %d devices",
					 CLAIM_DEVICES_MAX);
		error = read_result(result, driver, &claim->device[claim->count], fault);
		claim->count++;
	}
	return error;
}

static int read_claim(struct json_object *object, const struct claim_id *id, const char *driver,
		      struct claim *claim, struct fault *fault)
{
	struct json_object *results = json_at(object, RESULTS);
	int error = 0;

	if (!json_text_at(object, "metadata.uid") ||
	    !is_same(json_text_at(object, "metadata.name"), id->name) ||
	    !is_same(json_text_at(object, "metadata.namespace"), id->namespace))
		return fault_set(fault, -EBADMSG,
				 "the API server's answer is not the ResourceClaim of that name");
	if (!is_same(json_text_at(object, "metadata.uid"), id->uid))
		return fault_set(fault, -ESTALE,
				 "the claim %s/%.100s was deleted and made again: delete the pod",
				 id->namespace, id->name);
	if (json_object_is_type(results, json_type_array))
		error = read_results(results, driver, claim, fault);
	if (!error && claim->count == 0)
		error = fault_set(fault, -ENODATA,
				  "the claim %s/%.100s has no devices of %s allocated",
				  id->namespace, id->name, driver);
	return error;
}

int claim_parse(const char *text, size_t len, const struct claim_id *id, const char *driver,
		struct claim *ret_claim, struct fault *fault)
{
	struct json_object *object = json_read(text, len);
	struct claim claim = {0};
	int error = read_claim(object, id, driver, &claim, fault);

	json_object_put(object);
	if (!error)
		*ret_claim = claim;
	return error;
}

/* -- the excerpt ------------------------------------------------------------------------------- */

/* Makes an object whose only member is the value. */
static struct json_object *wrap(const char *name, struct json_object *value)
{
	struct json_object *object = json_object_new_object();

	json_object_object_add(object, name, value);
	return object;
}

/* The results of this driver. */
static struct json_object *own_results(struct json_object *results, const char *driver)
{
	struct json_object *own = json_object_new_array();

	for (size_t i = 0; i < json_object_array_length(results); i++) {
		struct json_object *result = json_object_array_get_idx(results, i);

		if (is_same(json_text_at(result, "driver"), driver))
			json_object_array_add(own, json_object_get(result));
	}
	return own;
}

char *claim_excerpt(const char *text, size_t len, const char *driver)
{
	static const char *const names[] = {"namespace", "name", "uid"};
	struct json_object *object = json_read(text, len), *results = json_at(object, RESULTS);
	struct json_object *metadata = json_object_new_object(), *excerpt;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		json_object_object_add(
			metadata, names[i],
			json_object_get(json_at(json_at(object, "metadata"), names[i])));
	excerpt = wrap("metadata", metadata);
	json_object_object_add(
		excerpt, "status",
		wrap("allocation", wrap("devices", wrap("results", own_results(results, driver)))));
	json_object_put(object);
	return json_write(excerpt);
}
