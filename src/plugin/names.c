/*
 * The kubelet tells which pod has a device, and a device belongs to one container after
 * another. So an answer names the newest record that has the device, and only if that record
 * was made before the question.
 *
 * The kubelet takes a device from an ended pod before it asks the plugin for the next pod's
 * container. So an answer to a later question does not have the former pod. Init containers
 * have the devices of another container of their pod, whose record is newer, and the kubelet
 * does not list them: they stay without a name.
 *
 * A kubelet that does not answer is asked again. It delays no container.
 */
#include "names.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "grpc.h"
#include "pod_resources.h"
#include "records.h"
#include "say.h"

#define FIRST_MS  1000  /* from the start to the first question */
#define PERIOD_MS 10000 /* between questions */
#define CALL_MS   10000

struct names {
	struct loop *loop;
	struct loop_watch timer;
	const char *socket, *state;
	struct grpc_call *call;
	uint64_t below;    /* the call's answer may name records with a lower number */
	bool again;        /* a container has started since the call began */
	struct fault said; /* the last logged failure */
};

/* -- records ----------------------------------------------------------------------------------- */

/* Writes STATE/NAME to path, which has PATH_MAX bytes, and returns path. */
static char *directory_of(const struct names *names, const struct record *record, char *path)
{
	snprintf(path, PATH_MAX, "%s/%s", names->state, record->name);
	return path;
}

static bool is_named(const struct names *names, const struct record *record)
{
	struct pod_users there;
	char path[PATH_MAX];

	return pod_read(directory_of(names, record, path), POD_FILE, &there);
}

struct search {
	const struct records *records;
	const struct record *record;
};

static bool is_newest(const void *arg, const char *id, size_t len)
{
	const struct search *search = arg;

	return records_newest(search->records, id, len) == search->record;
}

/* Whether an answer could name one of the records: it has no name, and is the newest of one of
 * its devices. */
static bool lacks_name(const struct names *names, const struct records *records)
{
	for (unsigned i = 0; i < records->count; i++) {
		struct search search = {records, &records->record[i]};

		if (records_any_id(search.record, is_newest, &search) &&
		    !is_named(names, search.record))
			return true;
	}
	return false;
}

/* -- the answer -------------------------------------------------------------------------------- */

struct answer {
	const struct names *names;
	struct records records;
};

static void take_name(void *arg, const char *id, size_t len, const struct pod_names *pod)
{
	const struct answer *answer = arg;
	const struct record *record = records_newest(&answer->records, id, len);
	struct pod_users users = {.count = 0};
	struct fault fault = {""};
	char path[PATH_MAX];

	if (!record || record->number >= answer->names->below || is_named(answer->names, record))
		return;
	pod_add(&users, pod);
	if (users.count == 0)
		return;
	if (pod_write(directory_of(answer->names, record, path), POD_FILE, &users, &fault))
		say(LOG_WARNING, "cannot write down the name of a pod: %s", fault.text);
}

/* Logs a fault that lasts once; "" is no fault. */
static void note(struct names *names, const struct fault *fault)
{
	if (say_changed(&names->said, fault->text) && *fault->text)
		say(LOG_WARNING, "cannot find the pods of containers: %s; see --pods", fault->text);
}

static int read_records(const struct names *names, struct records *ret_records, struct fault *fault)
{
	int error = records_read(names->state, ret_records);

	return error ? fault_set(fault, error, "cannot read %.200s: %s", names->state,
				 strerror(-error))
		     : 0;
}

static void take_answer(const struct names *names, struct pb_message message, struct fault *fault)
{
	struct answer answer = {names, {0, NULL}};

	if (read_records(names, &answer.records, fault))
		return;
	if (pod_resources_each(message, POD_RESOURCES_DEVICES, take_name, &answer))
		fault_set(fault, -EBADMSG, "the answer of %.200s is not a list of pods",
			  names->socket);
	records_free(&answer.records);
}

static void on_answer(void *arg, enum grpc_status status, struct pb_message message,
		      const char *why)
{
	struct names *names = arg;
	struct fault fault = {""};

	names->call = NULL;
	if (status == GRPC_OK)
		take_answer(names, message, &fault);
	else
		fault_set(&fault, -EIO, "%.200s answers: %.200s", names->socket, why);
	note(names, &fault);
	if (names->again)
		names_ask(names);
}

/* -- the question ------------------------------------------------------------------------------ */

void names_ask(struct names *names)
{
	static const struct bytes empty;
	struct fault fault = {""};
	struct records records;
	bool lacks;

	names->again = names->call != NULL;
	if (names->call)
		return;
	if (read_records(names, &records, &fault)) {
		note(names, &fault);
		return;
	}
	names->below = records_next_number(&records);
	lacks = lacks_name(names, &records);
	records_free(&records);
	if (!lacks)
		return;
	names->call = grpc_call(names->loop, names->socket, POD_RESOURCES_LIST, &empty, CALL_MS,
				on_answer, names, &fault);
	if (!names->call)
		note(names, &fault);
}

static void on_timer(void *arg, uint32_t events)
{
	struct names *names = arg;

	(void)events;
	loop_timer_read(names->timer.fd);
	if (!names->call)
		names_ask(names);
}

/* -- all of it --------------------------------------------------------------------------------- */

struct names *names_begin(struct loop *loop, const char *socket, const char *state,
			  struct fault *fault)
{
	struct names *names = calloc(1, sizeof(*names));
	int error = names ? 0 : -ENOMEM;

	if (!error) {
		*names = (struct names){
			.loop = loop,
			.timer = {loop_timer(FIRST_MS, PERIOD_MS), on_timer, names},
			.socket = socket,
			.state = state,
		};
		error = names->timer.fd < 0 ? names->timer.fd : loop_add(loop, &names->timer);
	}
	if (!error)
		return names;
	if (names && names->timer.fd >= 0)
		close(names->timer.fd);
	free(names);
	fault_set(fault, error, "cannot ask the kubelet for pods' names: %s", strerror(-error));
	return NULL;
}

void names_end(struct names *names)
{
	if (!names)
		return;
	grpc_call_cancel(names->call);
	loop_remove(names->loop, &names->timer);
	close(names->timer.fd);
	free(names);
}
