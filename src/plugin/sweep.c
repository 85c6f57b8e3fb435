/*
 * Decides which containers are gone, and removes their directories.
 *
 * The kubelet keeps the answer to Allocate as long as a pod lives. It mounts from that answer
 * whenever a container of the pod starts, even after the node has started again. So a directory
 * must outlive all processes of its container, and the state directory must outlive a restart
 * of the machine. Init containers get the devices of their pod's containers, by an Allocate of
 * their own right before. A kubelet that was just started does not know its pods yet. So a
 * container is gone only if
 *
 *   it is grace_s old, and no pod has had any of its devices for grace_s; or
 *   another one, which was made grace_s or more after it, has one of its devices;
 *
 * and if no process lives in its region, and no process in /proc has the directory mounted.
 * Since everything below a region's directory may be the tenant's doing, a directory is first
 * moved away in one step (gone.h). Then ENTRIES_MAX files at most are removed in a round.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "containers.h"
#include "gone.h"
#include "lives.h"
#include "records.h"

#define ENTRIES_MAX 4096 /* files and directories */

/* -- which are gone ---------------------------------------------------------------------------- */

static bool is_in_use(const void *arg, const char *id, size_t len)
{
	const struct bytes *in_use = arg;

	for (size_t at = 0; at < in_use->len;) {
		const char *used = (const char *)in_use->data + at;
		size_t used_len = strlen(used);

		if (used_len == len && memcmp(used, id, len) == 0)
			return true;
		at += used_len + 1;
	}
	return false;
}

static bool is_in_record(const void *arg, const char *id, size_t len)
{
	return records_has_id(arg, id, len);
}

static bool is_superseded(const struct record *record, const struct records *records,
			  unsigned grace_s)
{
	for (unsigned i = 0; i < records->count; i++) {
		const struct record *other = &records->record[i];

		if (records_is_later(other, record, grace_s) &&
		    records_any_id(record, is_in_record, other))
			return true;
	}
	return false;
}

static bool has_process(const char *regions, const struct record *record)
{
	char path[CONTAINERS_PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s/region", regions, record->name);
	return lives_in_region(path);
}

/* Whether the container is gone, provided that no process has its directory mounted. */
static bool may_be_gone(const char *regions, const struct record *record,
			const struct records *records, const struct bytes *in_use, unsigned grace_s)
{
	bool unused = in_use && records_is_old(record, grace_s) &&
		      !records_any_id(record, is_in_use, in_use);

	return (unused || is_superseded(record, records, grace_s)) && !has_process(regions, record);
}

/* -- looking ----------------------------------------------------------------------------------- */

static int open_directory(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Moves the directories of containers that no process has mounted. The region's directory comes
 * first, as one without a record would never be found. Returns the number of containers. */
static int remove_gone(int state, int regions, struct lives_name *names, unsigned count)
{
	int removed = 0;

	lives_in_mounts(names, count);
	for (unsigned i = 0; i < count; i++)
		if (!names[i].is_mounted)
			removed += gone_move(regions, names[i].name) &&
				   gone_move(state, names[i].name);
	return removed;
}

static int sweep(int state, int regions, const struct containers_places *places,
		 const struct bytes *in_use, unsigned grace_s)
{
	struct records records = {0, NULL};
	int result = records_read(places->state, &records);
	struct lives_name *names = result ? NULL : calloc(records.count + 1, sizeof(*names));
	unsigned count = 0;

	for (unsigned i = 0; names && i < records.count; i++)
		if (may_be_gone(places->regions, &records.record[i], &records, in_use, grace_s))
			names[count++].name = records.record[i].name;
	if (names)
		result = remove_gone(state, regions, names, count);
	else if (!result)
		result = -ENOMEM;
	free(names);
	records_free(&records);
	return result;
}

static void close_both(int state, int regions)
{
	if (state >= 0)
		close(state);
	if (regions >= 0)
		close(regions);
}

int containers_sweep(const struct containers_places *places, const struct bytes *in_use,
		     unsigned grace_s)
{
	int state = open_directory(places->state), regions = open_directory(places->regions);
	int result = state < 0 ? state : regions;

	if (state >= 0 && regions >= 0)
		result = sweep(state, regions, places, in_use && !in_use->failed ? in_use : NULL,
			       grace_s);
	close_both(state, regions);
	return result;
}

bool containers_remove(const struct containers_places *places)
{
	int state = open_directory(places->state), regions = open_directory(places->regions);
	unsigned budget = ENTRIES_MAX;
	bool whole = gone_remove(state, &budget);

	whole = gone_remove(regions, &budget) && whole;
	close_both(state, regions);
	return whole;
}
