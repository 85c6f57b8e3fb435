/*
 * The kubelet lists the CDI devices of each container, and a claim's CDI device has the claim's
 * UID in its name. So an answer never counts for another claim, even if it is late.
 *
 * A file that would not change is not written again. When no container uses a claim any more,
 * its file stays until the claim is removed, and names the last containers. Without the
 * kubelet's answer, nothing changes.
 */
#include "users.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "pod_resources.h"
#include "say.h"
#include "spec.h"

#define LOOK_NS (10 * NS_PER_S)
#define CALL_MS 10000
#define CDI     CONTAINER_SPEC_KIND "="

/* -- claims ------------------------------------------------------------------------------------ */

struct user_claim {
	char uid[CLAIMS_UID_LEN];
	struct pod_users users;
};

struct list {
	struct user_claim *claim;
	unsigned count, room;
};

static int add_claim(void *arg, const char *uid, const char *name)
{
	struct list *list = arg;
	struct user_claim *more;

	(void)name;
	if (list->count == list->room) {
		list->room = list->room ? 2 * list->room : 16;
		more = realloc(list->claim, list->room * sizeof(*more));
		if (!more)
			return -ENOMEM;
		list->claim = more;
	}
	snprintf(list->claim[list->count].uid, CLAIMS_UID_LEN, "%s", uid);
	list->claim[list->count++].users.count = 0;
	return 0;
}

static int stop_at_first(void *arg, const char *uid, const char *name)
{
	(void)arg, (void)uid, (void)name;
	return 1;
}

static bool has_claims(const struct users *users)
{
	return claims_each(users->places, stop_at_first, NULL) == 1;
}

/* -- the answer -------------------------------------------------------------------------------- */

/* Adds a container to the claim with the CDI device id; id may be another driver's. */
static void add_user(void *arg, const char *id, size_t len, const struct pod_names *names)
{
	struct list *list = arg;
	size_t kind = strlen(CDI);
	char uid[CLAIMS_UID_LEN];

	if (len < kind || memcmp(id, CDI, kind) != 0 ||
	    !claims_slice_uid(id + kind, len - kind, uid))
		return;
	for (unsigned i = 0; i < list->count; i++)
		if (strcmp(list->claim[i].uid, uid) == 0)
			pod_add(&list->claim[i].users, names);
}

/* Writes the claim's file if it changes. A claim without a container keeps its file. */
static int write_claim(const struct users *users, const struct user_claim *claim,
		       struct fault *fault)
{
	char file[CLAIMS_FILE_LEN];
	struct pod_users there;

	claims_pods_file(claim->uid, file);
	if (claim->users.count == 0 || (pod_read(users->places->claims, file, &there) &&
					pod_users_are_same(&there, &claim->users)))
		return 0;
	return pod_write(users->places->claims, file, &claim->users, fault);
}

static int take_answer(const struct users *users, struct pb_message answer, struct fault *fault)
{
	struct list list = {NULL, 0, 0};
	int error = claims_each(users->places, add_claim, &list);

	if (error)
		fault_set(fault, error, "cannot read %.300s: %s", users->places->claims,
			  strerror(-error));
	else if (pod_resources_each(answer, POD_RESOURCES_CDI, add_user, &list))
		error = fault_set(fault, -EBADMSG, "the kubelet's answer is not a list of pods");
	for (unsigned i = 0; !error && i < list.count; i++)
		error = write_claim(users, &list.claim[i], fault);
	free(list.claim);
	return error;
}

/* Logs a fault that lasts once; "" is no fault. */
static void note(struct users *users, const struct fault *fault)
{
	if (say_changed(&users->said, fault->text) && *fault->text)
		say(LOG_WARNING, "cannot find the pods of claims: %s", fault->text);
}

static void on_answer(void *arg, enum grpc_status status, struct pb_message answer, const char *why)
{
	struct users *users = arg;
	struct fault fault = {""};

	users->call = NULL;
	if (status == GRPC_OK)
		take_answer(users, answer, &fault);
	else
		fault_set(&fault, -EIO, "%.200s answers: %.200s; see --kubelet", users->socket,
			  why);
	note(users, &fault);
	if (users->again)
		users_soon(users);
}

/* -- the question ------------------------------------------------------------------------------ */

void users_look(struct users *users)
{
	static const struct bytes empty;
	struct fault fault = {""};
	uint64_t now_ns = clock_now_ns();

	if (users->call || now_ns < users->next_ns)
		return;
	users->next_ns = now_ns + LOOK_NS;
	users->again = false;
	if (!has_claims(users))
		return;
	users->call = grpc_call(users->loop, users->socket, POD_RESOURCES_LIST, &empty, CALL_MS,
				on_answer, users, &fault);
	if (!users->call)
		note(users, &fault);
}

void users_soon(struct users *users)
{
	users->again = users->call != NULL;
	users->next_ns = 0;
}

void users_end(struct users *users)
{
	grpc_call_cancel(users->call);
	users->call = NULL;
}
