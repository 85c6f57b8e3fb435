/*
 * A table maps the place of each known binding to a physical handle and an owner. The entry has the
 * serial of the memory, too, and one of its own. holding_lock protects the table.
 *
 * Always: each entry has one reference to its memory. The call that removes the entry, or puts
 * another binding in its place, releases that reference. Only quota_unbind_never leaves it. Where
 * there is no memory for the entry, the reference stays for good, and the memory stays charged.
 */
#include "binding.h"

#include "account.h"
#include "holding_internal.h"

static struct table bindings; /* under `holding_lock` */

void bindings_forked(void)
{
	table_clear(&bindings);
}

bool quota_bound(uint64_t place, uint64_t owner, const struct holding_reference *reference,
		 struct holding_release *ret_before)
{
	struct entry *binding;
	bool before = false;

	account_begin();
	lock_acquire(&holding_lock);
	binding = table_find(&bindings, place);
	if (binding)
		before = holding_let_go_locked(binding, ret_before);
	else
		binding = table_add(&bindings, place);
	if (binding) {
		binding->handle = reference->handle;
		binding->memory_serial = reference->serial;
		binding->owner = owner;
		binding->serial = holding_new_serial_locked();
	}
	holding_keep_locked(reference);
	lock_release(&holding_lock);
	if (!before)
		account_end();
	return before;
}

uint32_t quota_newest_binding(void)
{
	uint32_t newest;

	lock_acquire(&holding_lock);
	newest = holding_newest_serial_locked();
	lock_release(&holding_lock);
	return newest;
}

bool quota_unbound(uint64_t place, uint32_t newest, struct holding_release *ret_release)
{
	struct entry *binding;
	bool known = false;

	account_begin();
	lock_acquire(&holding_lock);
	binding = table_find(&bindings, place);
	if (binding && (int32_t)(binding->serial - newest) <= 0) {
		known = holding_let_go_locked(binding, ret_release);
		table_remove(&bindings, binding);
	}
	lock_release(&holding_lock);
	if (!known)
		account_end();
	return known;
}

/* The bindings to remove, and the references among them that are the last to their memory. */
struct unbinding {
	uint64_t owner, context; /* the one that is not 0 */
	struct holding_release *releases;
	size_t most, count;
};

static bool is_unbound(const struct unbinding *unbinding, const struct entry *binding)
{
	const struct entry *array;

	if (unbinding->owner)
		return binding->owner == unbinding->owner;
	array = holding_find_locked(HOLDING_ARRAY, binding->owner);
	return array && array->context == unbinding->context;
}

static bool unbind(void *arg, const struct entry *binding)
{
	struct unbinding *unbinding = arg;
	struct holding_release *release = &unbinding->releases[unbinding->count];

	if (unbinding->count == unbinding->most || !is_unbound(unbinding, binding))
		return false;
	if (!holding_let_go_locked(binding, release))
		return true;
	holding_end_locked(release);
	if (release->last) {
		account_begin();
		unbinding->count++;
	}
	return true;
}

static size_t unbind_all(struct unbinding *unbinding)
{
	lock_acquire(&holding_lock);
	if (bindings.count)
		table_remove_if(&bindings, unbind, unbinding);
	lock_release(&holding_lock);
	return unbinding->count;
}

size_t quota_unbind_owner(uint64_t owner, struct holding_release *ret_releases, size_t most)
{
	struct unbinding unbinding = {owner, 0, ret_releases, most, 0};

	return unbind_all(&unbinding);
}

size_t quota_unbind_context(uint64_t context, struct holding_release *ret_releases, size_t most)
{
	struct unbinding unbinding = {0, context, ret_releases, most, 0};

	return unbind_all(&unbinding);
}

static bool is_of_owner(void *arg, const struct entry *binding)
{
	return binding->owner == *(const uint64_t *)arg;
}

void quota_unbind_never(uint64_t owner)
{
	lock_acquire(&holding_lock);
	if (bindings.count)
		table_remove_if(&bindings, is_of_owner, &owner);
	lock_release(&holding_lock);
}
