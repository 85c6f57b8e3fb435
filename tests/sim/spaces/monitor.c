/*
 * No lock is taken, so a look may meet a change half done. What is asserted of a slot is asserted
 * of what was read twice and was the same both times, with the same claim of the slot before and
 * after it.
 */
#include "monitor.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"

/* In shared memory. */
struct orders {
	int pid, hostpid; /* by monitor_knows, hostpid first */
	uint32_t end;
	struct monitor_findings findings; /* by the monitor, before it ends */
	char path[256];
};

static struct orders *orders;
static struct member monitor;

#define SEE(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)

/* The file, as soon as it is a region; it must never be another one afterwards. */
static const struct vgpu_region_file *map_when_there(void)
{
	const struct vgpu_region_file *file;
	struct stat st;
	void *addr;
	int fd;

	while ((fd = open(orders->path, O_RDONLY | O_CLOEXEC)) < 0 || fstat(fd, &st) != 0 ||
	       st.st_size != sizeof(*file)) {
		if (fd >= 0)
			close(fd);
		usleep(100);
	}
	addr = mmap(NULL, sizeof(*file), PROT_READ, MAP_SHARED, fd, 0);
	CHECK(addr != MAP_FAILED);
	close(fd);
	file = addr;
	while (SEE(file->hami.magic) != VGPU_HAMI_MAGIC || SEE(file->own.magic) == 0)
		usleep(100);
	return file;
}

static struct monitor_slot read_once(const struct vgpu_region_file *file, unsigned index)
{
	const struct vgpu_hami_slot *slot = &file->hami.slots[index];
	struct monitor_slot seen;

	memset(&seen, 0, sizeof(seen)); /* it is compared as a whole */
	seen.slot = index;
	seen.used.total = SEE(slot->used[0].total);
	seen.used.context = SEE(slot->used[0].context);
	seen.used.module = SEE(slot->used[0].module);
	seen.used.data = SEE(slot->used[0].data);
	seen.used.offset = SEE(slot->used[0].offset);
	seen.pid = SEE(slot->pid);
	seen.hostpid = SEE(slot->hostpid);
	return seen;
}

/* False where nobody is in it. */
static bool read_slot(const struct vgpu_region_file *file, unsigned index, bool *ret_steady,
		      struct monitor_slot *ret_seen)
{
	const struct vgpu_hami_slot *slot = &file->hami.slots[index];
	uint64_t claim = SEE(file->own.slots[index].claims);
	struct monitor_slot again;

	if (!SEE(slot->status))
		return false;
	*ret_seen = read_once(file, index);
	again = read_once(file, index);
	if (!SEE(slot->status))
		return false;
	*ret_steady = memcmp(ret_seen, &again, sizeof(again)) == 0 &&
		      SEE(file->own.slots[index].claims) == claim;
	return true;
}

static void judge(const struct monitor_slot *seen, struct monitor_findings *findings)
{
	const struct vgpu_hami_usage *used = &seen->used;
	int known = SEE(orders->pid);

	findings->low_totals +=
		used->total < used->context + used->module + used->data + used->offset;
	if (known)
		findings->wrong_hostpids +=
			seen->hostpid != (seen->pid == known ? orders->hostpid : 0);
}

static void watch(int wire)
{
	const struct vgpu_region_file *file = map_when_there();
	struct monitor_findings *findings = &orders->findings;
	struct monitor_slot seen;
	bool steady;

	(void)wire;
	while (!SEE(orders->end)) {
		int count = SEE(file->hami.slot_count);

		CHECK(count >= 0 && count <= VGPU_SLOTS_MAX);
		for (unsigned i = 0; i < (unsigned)count; i++) {
			if (!read_slot(file, i, &steady, &seen))
				continue;
			findings->looks++;
			findings->unsteady += !steady;
			if (steady)
				judge(&seen, findings);
		}
	}
}

void monitor_start(const char *region_path)
{
	orders = mmap(NULL, sizeof(*orders), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	CHECK(orders != MAP_FAILED);
	CHECK(strlen(region_path) < sizeof(orders->path));
	strcpy(orders->path, region_path);
	monitor = member_start(watch);
}

void monitor_knows(pid_t pid, pid_t hostpid)
{
	orders->hostpid = hostpid;
	__atomic_store_n(&orders->pid, pid, __ATOMIC_RELEASE);
}

struct monitor_findings monitor_end(void)
{
	__atomic_store_n(&orders->end, 1, __ATOMIC_RELEASE);
	member_end(&monitor);
	return orders->findings;
}

unsigned monitor_look(struct monitor_slot ret_slots[VGPU_SLOTS_MAX])
{
	unsigned count = 0, slots = (unsigned)SEE(ledger()->hami.slot_count);
	bool steady;

	for (unsigned i = 0; i < slots; i++)
		count += read_slot(ledger(), i, &steady, &ret_slots[count]);
	return count;
}
