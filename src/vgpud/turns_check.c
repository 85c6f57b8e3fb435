/*
 * A weight is wrong if and only if it is outside the range that the slice's policy and region
 * state:
 *
 *     entry of a slice with a share in its policy   the lower of policy and region .. the policy
 *     entry of a slice without one                  any: the slice states its limit itself
 *     entry of no slice, for UNKNOWN_LOOKS looks    1
 *     entry that may be of a slice whose region     1 .. the policy; any without a share in the
 *     was not read                                  policy
 *
 * A region that was not read may have an entry whose key has its inode (unread.h). While a
 * weight is not checked for that reason, one log line names the region, and a metric counts
 * such entries.
 *
 * A slice has one entry. If several living entries have its key, each has its part of the
 * weight. An entry is known by its key, which a program of the slice computes from its region.
 * An entry lives if and only if a byte of it is locked.
 *
 * No honest program writes a weight above its policy. But the file does not say which program wrote
 * a word. So a slice loses its turns only where a weight is too large at REFUSED_LOOKS consecutive
 * looks. Then some program writes it again within each second, in the slice's favour. The other
 * slices then get a new file, which this slice does not get. A program can move to a new file some
 * 24 times, so a GPU's file is replaced MOVES_MOST times at most, and once in MOVES_EACH_NS.
 */
#include "turns_check.h"

#include <string.h>

#include "clock.h"
#include "prom.h"
#include "say.h"
#include "sys.h"
#include "unread.h"

/* Consecutive looks after which a key that no slice has counts as unknown. Half: a slice that
 * was made after the look may lose its weight for a second. Twice: an entry with a false key
 * keeps its weight for longer. */
#define UNKNOWN_LOOKS 3

/* Consecutive looks with a weight that is too large, after which an event reports it, and after
 * which the slice gets no turns. Half: a policy that is often changed may look like misuse.
 * Twice: the slice takes too much for longer. */
#define TOLD_LOOKS    3
#define REFUSED_LOOKS 10

#define MOVES_MOST    8
#define MOVES_EACH_NS (60 * NS_PER_S)

/* -- entries ----------------------------------------------------------------------------------- */

/* An entry of a file, with the indexes of its slice in the overview and of its device in the
 * slice. */
struct claim {
	bool lives, known; /* known: a slice of the overview has the key */
	uint64_t key;
	unsigned slice, device;
	unsigned count; /* living entries with its key */
	unsigned first; /* the first of these entries */
};

static bool lives(const struct turns_file *file, unsigned entry)
{
	uint64_t first = VGPU_TURNS_LOCK_OFFSET + (uint64_t)entry * VGPU_TURNS_SEATS;

	return sys_bytes_are_locked(file->fd, first, VGPU_TURNS_SEATS) > 0;
}

static void find_slice(const struct overview *overview, const char *uuid, uint64_t key,
		       struct claim *claim)
{
	for (unsigned i = 0; i < overview->count && !claim->known; i++) {
		const struct overview_slice *slice = &overview->slice[i];
		const struct overview_device *device =
			slice->key == key ? overview_find_device(slice, uuid) : NULL;

		if (!device)
			continue;
		claim->known = true;
		claim->slice = i;
		claim->device = (unsigned)(device - slice->device);
	}
}

static void see_claims(const struct turns_file *file, const struct overview *overview,
		       struct claim *claims)
{
	for (unsigned i = 0; i < VGPU_TURNS_SLICES; i++) {
		uint64_t key = __atomic_load_n(&file->at->slice[i].key, __ATOMIC_RELAXED);

		claims[i] = (struct claim){.key = key, .lives = key && lives(file, i)};
		if (claims[i].lives)
			find_slice(overview, file->uuid, key, &claims[i]);
	}
	for (unsigned i = 0; i < VGPU_TURNS_SLICES; i++)
		for (unsigned j = VGPU_TURNS_SLICES; j-- > 0;)
			if (claims[j].lives && claims[j].key == claims[i].key) {
				claims[i].count++;
				claims[i].first = j;
			}
}

/* -- weights ----------------------------------------------------------------------------------- */

struct range {
	unsigned least, most; /* percent; 0: any weight is right */
};

static unsigned part_of(unsigned pct, unsigned count)
{
	return pct > count ? pct / count : 1;
}

static struct range range_of(const struct overview *overview, const struct track *track,
			     const struct claim *claim)
{
	const struct overview_slice *slice = &overview->slice[claim->slice];
	unsigned pct = track->slice[claim->slice].device[claim->device].policy_pct;
	unsigned stated = slice->device[claim->device].seen.cores_pct;

	if (!pct)
		return (struct range){0, 0};
	if (!stated || stated > pct || slice->lifted)
		stated = pct;
	return (struct range){part_of(stated, claim->count), part_of(pct, claim->count)};
}

static void say_unchecked(struct turns_file *file, const struct unread_region *region)
{
	if (!file->unchecked_said)
		say(LOG_WARNING,
		    "a weight in the file of turns of %s is not checked: it may be of slice %s, "
		    "whose region %s was not read: %s",
		    file->uuid, region->one->name, region->one->region_path, region->why);
	file->unchecked_said = true;
}

/* Finds the range of an entry that may be of a region that was not read; {0, 0}: any weight is
 * right. Returns false if the entry is of no slice. */
static bool find_unread_range(struct turns_file *file, uint64_t key, const struct unread *unread,
			      struct range *ret_range)
{
	const struct unread_region *region;
	unsigned at = 0, pct, most = 0;

	while ((region = unread_next(unread, key, file->uuid, &at, &pct))) {
		if (!pct) {
			say_unchecked(file, region);
			*ret_range = (struct range){0, 0};
			return true;
		}
		most = pct > most ? pct : most;
	}
	*ret_range = (struct range){1, most};
	return unread->failed || most > 0;
}

/* The range of an entry whose key is of no region that was read. */
static struct range range_of_unknown(struct turns_file *file, unsigned entry, uint64_t key,
				     const struct unread *unread)
{
	struct range range = {0, 0};

	if (find_unread_range(file, key, unread, &range)) {
		file->unknown_looks[entry] = 0;
		file->unchecked += !range.most;
		return range;
	}
	if (file->unknown_looks[entry] < UNKNOWN_LOOKS)
		file->unknown_looks[entry]++;
	if (file->unknown_looks[entry] < UNKNOWN_LOOKS)
		return (struct range){0, 0};
	return (struct range){1, 1};
}

static bool keep_within(uint32_t *word, struct range range)
{
	uint32_t value = __atomic_load_n(word, __ATOMIC_RELAXED);

	if (value >= range.least && value <= range.most)
		return true;
	__atomic_store_n(word, value < range.least ? range.least : range.most, __ATOMIC_RELAXED);
	return false;
}

/* Corrects an entry. Returns whether its weight or its assured quota was too large. */
static bool correct(struct turns_file *file, unsigned entry, struct range range)
{
	struct vgpu_turns_slice *slice = &file->at->slice[entry];
	bool is_above = __atomic_load_n(&slice->weight, __ATOMIC_RELAXED) > range.most ||
			__atomic_load_n(&slice->assured_pct, __ATOMIC_RELAXED) > range.most;

	if (!range.most)
		return false;
	file->corrections += !keep_within(&slice->weight, range);
	file->corrections += !keep_within(&slice->assured_pct, range);
	return is_above;
}

/* -- repeated misuse --------------------------------------------------------------------------- */

static void tell(struct events *events, enum event_kind kind, const struct slices_one *one,
		 const char *uuid, unsigned looks)
{
	struct json_object *event = event_of(one, uuid);

	event_add_number(event, "looks", looks);
	events_tell(events, kind, event,
		    kind == EVENT_TURNS_REFUSED
			    ? "slice %s gets no turns on %s for 10 minutes: a program again and "
			      "again writes a weight above its policy into the file of turns"
			    : "slice %s had a weight above its policy in the file of turns of %s, "
			      "written by some program; vgpud has corrected it",
		    one->name, uuid);
}

/* Refuses turns to the slice. Returns false if the file cannot be replaced again, or not
 * yet. */
static bool refuse(struct turns_server *server, struct turns_file *file,
		   const struct slices_one *one)
{
	struct fault fault = {""};

	if (file->moves >= MOVES_MOST ||
	    (file->moves && clock_now_ns() - file->moved_ns < MOVES_EACH_NS))
		return false;
	if (turns_server_refuse(server, file, one, &fault) == 0)
		return true;
	say(LOG_WARNING, "%s", fault.text);
	return false;
}

/* Counts the looks at which the slice's weight was too large, reports it, and refuses turns. */
static void judge(struct turns_server *server, struct turns_file *file,
		  const struct slices_one *one, struct track_device *device, bool is_above,
		  struct events *events)
{
	device->weight_looks = is_above ? device->weight_looks + 1 : 0;
	if (device->weight_looks == TOLD_LOOKS)
		tell(events, EVENT_TURNS_WRITTEN, one, file->uuid, TOLD_LOOKS);
	if (device->weight_looks < REFUSED_LOOKS || !refuse(server, file, one))
		return;
	tell(events, EVENT_TURNS_REFUSED, one, file->uuid, device->weight_looks);
	device->weight_looks = 0;
}

/* -- a look ------------------------------------------------------------------------------------ */

static void look_at(struct turns_server *server, struct turns_file *file,
		    const struct overview *overview, const struct unread *unread,
		    struct track *track, struct events *events)
{
	struct claim claims[VGPU_TURNS_SLICES];
	bool is_above[VGPU_TURNS_SLICES] = {false};
	struct range range;

	see_claims(file, overview, claims);
	file->unchecked = 0;
	for (unsigned i = 0; i < VGPU_TURNS_SLICES; i++) {
		if (!claims[i].lives || claims[i].known)
			file->unknown_looks[i] = 0;
		if (!claims[i].lives)
			continue;
		range = claims[i].known ? range_of(overview, track, &claims[i])
					: range_of_unknown(file, i, claims[i].key, unread);
		is_above[claims[i].first] |= correct(file, i, range);
	}
	file->unchecked_said = file->unchecked_said && file->unchecked > 0;
	for (unsigned i = 0; i < VGPU_TURNS_SLICES; i++)
		if (claims[i].lives && claims[i].known && claims[i].first == i)
			judge(server, file, overview->slice[claims[i].slice].one,
			      &track->slice[claims[i].slice].device[claims[i].device], is_above[i],
			      events);
}

void turns_check_look(struct turns_server *server, const struct overview *overview,
		      struct track *track, struct events *events)
{
	struct unread unread = {.count = 0};

	if (track->count != overview->count)
		return;
	if (server->store.count > 0)
		unread_list(overview, &unread);
	for (unsigned i = 0; i < server->store.count; i++)
		look_at(server, &server->store.file[i], overview, &unread, track, events);
	unread_free(&unread);
}

/* -- metrics ----------------------------------------------------------------------------------- */

static void write_family(struct text *text, const struct turns_server *server,
			 const struct prom_family *family,
			 double value(const struct turns_file *file))
{
	prom_begin(text, family);
	for (unsigned i = 0; i < server->store.count; i++) {
		struct text labels = {0};

		prom_label(&labels, "device_uuid", server->store.file[i].uuid);
		if (labels.failed)
			text->failed = true;
		else
			prom_sample(text, family, labels.bytes, "", value(&server->store.file[i]));
		text_free(&labels);
	}
}

static double corrections(const struct turns_file *file)
{
	return (double)file->corrections;
}

static double unchecked(const struct turns_file *file)
{
	return file->unchecked;
}

void turns_check_write(struct text *text, const struct turns_server *server)
{
	static const struct prom_family corrected = {
		"vgpu_gpu_turns_corrections_total", PROM_COUNTER,
		"Weights of slices in the GPU's file of turns that vgpud has corrected."};
	static const struct prom_family not_checked = {
		"vgpu_gpu_turns_unchecked_weights", PROM_GAUGE,
		"Weights in the GPU's file of turns that vgpud does not check, because they may be "
		"of a slice whose region it has not read."};

	write_family(text, server, &corrected, corrections);
	write_family(text, server, &not_checked, unchecked);
}
