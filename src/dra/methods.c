/*
 * A claim that cannot be prepared is an error in the answer, alongside the devices of other
 * claims. A request that is no message of its kind, or has a name that Kubernetes does not
 * allow, is refused as a whole.
 *
 * The CDI device of a claim comes with the claim's first device of each request. So a container
 * that uses one request of a claim gets the policy. A container that uses several requests gets
 * the CDI device more than once, and a runtime then makes the same mounts and sets the same
 * variable again.
 */
#include "methods.h"

#include <errno.h>
#include <string.h>

#include "say.h"

#define DRA          "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"
#define REGISTRATION "/pluginregistration.Registration/"

/* -- claims ------------------------------------------------------------------------------------ */

/* Reads a message Claim. Returns false if it is malformed, or has a name that is not
 * allowed. */
static bool read_id(struct pb_message message, struct claim_id *ret_id)
{
	struct claim_id id = {.name = ""};
	struct pb_field field;
	bool good = true;
	int more;

	while (good && (more = pb_next(&message, &field)) != 0) {
		if (more < 0)
			return false;
		if (pb_is(&field, 1, PB_BYTES))
			good = pb_string(&field, id.namespace, sizeof(id.namespace));
		else if (pb_is(&field, 2, PB_BYTES))
			good = pb_string(&field, id.uid, sizeof(id.uid));
		else if (pb_is(&field, 3, PB_BYTES))
			good = pb_string(&field, id.name, sizeof(id.name));
	}
	*ret_id = id;
	return good && claim_id_is_good(&id);
}

typedef void answer_claim(const struct prepare *prepare, const struct claim_id *id,
			  struct bytes *ret_answer);

/* For each claim of the request, adds an entry to the answer's map from UIDs to answers. */
static enum grpc_status answer_claims(const struct prepare *prepare, struct pb_message request,
				      answer_claim *answer, struct bytes *ret_message,
				      struct fault *fault)
{
	struct pb_field field;
	int more;

	while ((more = pb_next(&request, &field)) > 0) {
		struct bytes entry = {0}, value = {0};
		struct claim_id id;

		if (!pb_is(&field, 1, PB_BYTES))
			continue;
		if (!read_id(field.within, &id)) {
			fault_set(fault, -EINVAL,
				  "the request has a claim with an invalid name or UID");
			return GRPC_INVALID_ARGUMENT;
		}
		answer(prepare, &id, &value);
		pb_put_string(&entry, 1, id.uid);
		pb_put_message(&entry, 2, &value);
		pb_put_message(ret_message, 1, &entry);
		bytes_free(&value);
		bytes_free(&entry);
	}
	if (more == 0)
		return GRPC_OK;
	fault_set(fault, -EBADMSG, "the request is no list of claims");
	return GRPC_INVALID_ARGUMENT;
}

/* -- preparing --------------------------------------------------------------------------------- */

static bool is_first_of_request(const struct claim *claim, unsigned at)
{
	for (unsigned i = 0; i < at; i++)
		if (strcmp(claim->device[i].request, claim->device[at].request) == 0)
			return false;
	return true;
}

static void put_device(const struct prepare *prepare, const struct claim_id *id,
		       const struct claim *claim, unsigned at, struct bytes *answer)
{
	const struct claim_device *share = &claim->device[at];
	struct bytes device = {0};
	char name[PREPARE_ID_LEN];

	pb_put_string(&device, 1, share->request);
	pb_put_string(&device, 2, share->pool);
	pb_put_string(&device, 3, share->device);
	prepare_claim_cdi(id, name);
	if (is_first_of_request(claim, at))
		pb_put_string(&device, 4, name);
	prepare_gpu_cdi(prepare, share, name);
	pb_put_string(&device, 4, name);
	pb_put_string(&device, 5, share->share);
	pb_put_message(answer, 1, &device);
	bytes_free(&device);
}

/* Adds the fault as a string. A string of a message must be UTF-8, and a fault may be cut off
 * within a character. */
static void put_error(struct bytes *answer, unsigned field, struct fault *fault)
{
	for (char *at = fault->text; *at; at++)
		if ((unsigned char)*at > '~')
			*at = '?';
	pb_put_string(answer, field, fault->text);
}

static void prepare_one(const struct prepare *prepare, const struct claim_id *id,
			struct bytes *ret_answer)
{
	struct fault fault = {""};
	struct claim claim;

	if (prepare_claim(prepare, id, &claim, &fault)) {
		say(LOG_ERR, "cannot prepare the claim %s/%s: %s", id->namespace, id->name,
		    fault.text);
		put_error(ret_answer, 2, &fault);
		return;
	}
	say(LOG_INFO, "has prepared the claim %s/%s", id->namespace, id->name);
	users_soon(prepare->users);
	for (unsigned i = 0; i < claim.count; i++)
		put_device(prepare, id, &claim, i, ret_answer);
}

static void undo_one(const struct prepare *prepare, const struct claim_id *id,
		     struct bytes *ret_answer)
{
	struct fault fault = {""};

	if (!prepare_undo(prepare, id, &fault))
		return;
	say(LOG_ERR, "cannot remove the claim %s/%s: %s", id->namespace, id->name, fault.text);
	put_error(ret_answer, 1, &fault);
}

static enum grpc_status node_prepare(void *arg, struct pb_message request,
				     struct bytes *ret_message, struct fault *fault)
{
	return answer_claims(arg, request, prepare_one, ret_message, fault);
}

static enum grpc_status node_unprepare(void *arg, struct pb_message request,
				       struct bytes *ret_message, struct fault *fault)
{
	return answer_claims(arg, request, undo_one, ret_message, fault);
}

const struct grpc_method methods_dra[] = {
	{DRA "NodePrepareResources", node_prepare, false},
	{DRA "NodeUnprepareResources", node_unprepare, false},
	{NULL, NULL, false},
};

/* -- registration ------------------------------------------------------------------------------ */

static enum grpc_status get_info(void *arg, struct pb_message request, struct bytes *ret_message,
				 struct fault *fault)
{
	const struct methods_registration *registration = arg;

	(void)request, (void)fault;
	pb_put_string(ret_message, 1, "DRAPlugin");
	pb_put_string(ret_message, 2, registration->driver);
	pb_put_string(ret_message, 3, registration->endpoint);
	pb_put_string(ret_message, 4, "v1.DRAPlugin");
	return GRPC_OK;
}

static enum grpc_status notify(void *arg, struct pb_message request, struct bytes *ret_message,
			       struct fault *fault)
{
	const struct methods_registration *registration = arg;
	char why[512] = "";
	bool registered = false;
	struct pb_field field;
	int more;

	(void)ret_message;
	while ((more = pb_next(&request, &field)) > 0) {
		if (pb_is(&field, 1, PB_VARINT))
			registered = field.varint;
		else if (pb_is(&field, 2, PB_BYTES) && !pb_string(&field, why, sizeof(why)))
			strcpy(why, "the reason is too long");
	}
	if (more < 0) {
		fault_set(fault, -EBADMSG, "the request is no RegistrationStatus");
		return GRPC_INVALID_ARGUMENT;
	}
	if (registered)
		say(LOG_NOTICE, "the kubelet has registered %s", registration->driver);
	else
		say(LOG_ERR, "the kubelet does not register %s: %s", registration->driver, why);
	registration->registered(registration->arg);
	return GRPC_OK;
}

const struct grpc_method methods_registration[] = {
	{REGISTRATION "GetInfo", get_info, false},
	{REGISTRATION "NotifyRegistrationStatus", notify, false},
	{NULL, NULL, false},
};
