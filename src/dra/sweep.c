/*
 * A round asks the API server for each claim that is prepared. A claim is gone if the server
 * has no claim of that name, has another one, or has not allocated anything of this node to it.
 * A claim is removed if
 *
 *   two consecutive rounds, at least a period apart, have found it gone; and
 *   no process is alive in its region, and none has a file of its slice mounted.
 *
 * After any other answer the claim stays. A server that does not answer ends the round, and the
 * findings of earlier rounds are forgotten. The claim's name (claims.h) is removed last, so a
 * removal that fails or is killed is repeated in a later round.
 */
#include "sweep.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "claim_fetch.h"
#include "clock.h"
#include "lives.h"
#include "say.h"

#define BUDGET_NS (NS_PER_S / 10) /* of one sweep_look */

/* -- the claims of a round --------------------------------------------------------------------- */

struct list {
	const struct sweep *before;
	struct sweep_claim *claim;
	unsigned count, room;
};

static bool was_gone(const struct sweep *before, const char *uid)
{
	for (unsigned i = 0; i < before->count; i++)
		if (strcmp(before->claim[i].id.uid, uid) == 0)
			return before->claim[i].was_gone;
	return false;
}

/* Adds a claim to the list. name: NAMESPACE/NAME. A claim with a damaged name is skipped. */
static int add_claim(void *arg, const char *uid, const char *name)
{
	struct list *list = arg;
	struct sweep_claim claim = {.was_gone = was_gone(list->before, uid)};
	size_t namespace_len = strcspn(name, "/");
	struct sweep_claim *more;

	if (namespace_len >= sizeof(claim.id.namespace) || !name[namespace_len] ||
	    strlen(name + namespace_len + 1) >= sizeof(claim.id.name))
		return 0;
	memcpy(claim.id.namespace, name, namespace_len);
	snprintf(claim.id.name, sizeof(claim.id.name), "%s", name + namespace_len + 1);
	snprintf(claim.id.uid, sizeof(claim.id.uid), "%s", uid);
	if (!claim_id_is_good(&claim.id))
		return 0;
	if (list->count == list->room) {
		list->room = list->room ? 2 * list->room : 16;
		more = realloc(list->claim, list->room * sizeof(*more));
		if (!more)
			return -ENOMEM;
		list->claim = more;
	}
	list->claim[list->count++] = claim;
	return 0;
}

static int begin_round(struct sweep *sweep, struct fault *fault)
{
	struct list list = {.before = sweep};
	int error = claims_each(&sweep->prepare->places, add_claim, &list);

	free(sweep->claim);
	sweep->claim = list.claim;
	sweep->count = list.count;
	sweep->at = 0;
	sweep->runs = true;
	return error ? fault_set(fault, error, "cannot read %.300s: %s",
				 sweep->prepare->places.claims, strerror(-error))
		     : 0;
}

/* -- a claim ----------------------------------------------------------------------------------- */

static bool is_allocated_here(const struct prepare *prepare, const struct claim *claim)
{
	for (unsigned i = 0; i < claim->count; i++)
		if (strcmp(claim->device[i].pool, prepare->node) == 0)
			return true;
	return false;
}

/* Asks the API server whether the claim is gone. *ret_gone is false in doubt. Returns 0; or
 * -EIO with a fault, and the server did not answer or refused the request. */
static int ask_whether_gone(const struct prepare *prepare, const struct claim_id *id,
			    bool *ret_gone, struct fault *fault)
{
	struct bytes text = {0};
	struct claim claim;
	int error = claim_fetch(prepare->server, id, &text, fault);

	if (error == -EIO || error == -EACCES) {
		bytes_free(&text);
		return -EIO;
	}
	if (!error)
		error = claim_parse((const char *)text.data, text.len, id, prepare->driver, &claim,
				    NULL);
	*ret_gone = error ? error == -ENOENT || error == -ESTALE || error == -ENODATA
			  : !is_allocated_here(prepare, &claim);
	bytes_free(&text);
	return 0;
}

static bool has_process(const struct prepare *prepare, const char *name)
{
	char path[PATH_MAX];

	container_region_path(&prepare->places.containers, name, path);
	return lives_in_region(path);
}

static void remove_claim(const struct prepare *prepare, const struct claim_id *id)
{
	struct fault fault = {""};

	if (!prepare_undo(prepare, id, &fault))
		say(LOG_NOTICE, "has removed the claim %s/%s, which is gone", id->namespace,
		    id->name);
	else
		say(LOG_ERR, "cannot remove the claim %s/%s, which is gone: %s", id->namespace,
		    id->name, fault.text);
}

/* A claim that is to be removed, and its slice. */
struct due {
	const struct claim_id *id;
	char name[CLAIMS_SLICE_LEN];
};

/* Lists the claims from `first` on that are due and have no process in their region. Returns
 * their number. */
static unsigned list_due(const struct sweep *sweep, unsigned first, struct due *due)
{
	unsigned count = 0;

	for (unsigned i = first; i < sweep->at; i++) {
		due[count].id = &sweep->claim[i].id;
		claims_slice_name(sweep->claim[i].id.uid, due[count].name);
		count += sweep->claim[i].is_due && !has_process(sweep->prepare, due[count].name);
	}
	return count;
}

/* Removes the claims from `first` on that are due and not in use. Without memory, a later round
 * removes them. */
static void remove_due(const struct sweep *sweep, unsigned first)
{
	unsigned most = sweep->at - first + 1, count = 0;
	struct due *due = calloc(most, sizeof(*due));
	struct lives_name *names = calloc(most, sizeof(*names));

	if (due && names)
		count = list_due(sweep, first, due);
	for (unsigned i = 0; i < count; i++)
		names[i].name = due[i].name;
	lives_in_mounts(names, count);
	for (unsigned i = 0; i < count; i++)
		if (!names[i].is_mounted)
			remove_claim(sweep->prepare, due[i].id);
	free(names);
	free(due);
}

static int look_at(const struct sweep *sweep, struct sweep_claim *claim, struct fault *fault)
{
	bool gone;
	int error = ask_whether_gone(sweep->prepare, &claim->id, &gone, fault);

	if (error)
		return error;
	claim->is_due = gone && claim->was_gone;
	claim->was_gone = gone;
	return 0;
}

/* -- rounds ------------------------------------------------------------------------------------ */

static void end_round(struct sweep *sweep)
{
	sweep->runs = false;
	sweep->next_ns = clock_now_ns() + sweep->period_s * NS_PER_S;
}

static void give_up(struct sweep *sweep, const struct fault *fault)
{
	sweep->count = 0;
	end_round(sweep);
	if (say_changed(&sweep->said, fault->text))
		say(LOG_WARNING, "cannot look for claims that are gone: %s", fault->text);
}

void sweep_look(struct sweep *sweep)
{
	uint64_t began_ns = clock_now_ns();
	struct fault fault = {""};
	unsigned first;
	int error = 0;

	if (!sweep->runs) {
		if (began_ns < sweep->next_ns)
			return;
		error = begin_round(sweep, &fault);
	}
	first = sweep->at;
	while (!error && sweep->at < sweep->count && clock_now_ns() - began_ns < BUDGET_NS)
		error = look_at(sweep, &sweep->claim[sweep->at++], &fault);
	remove_due(sweep, first);
	if (error) {
		give_up(sweep, &fault);
	} else if (sweep->at == sweep->count) {
		end_round(sweep);
		say_changed(&sweep->said, "");
	}
}

void sweep_end(struct sweep *sweep)
{
	free(sweep->claim);
}
