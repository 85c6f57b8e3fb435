/* VGPU_TRACE=memory,region: what the process of a slice writes down, read from its file. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cuda_api.h"
#include "trace_file.h"

/* What is written until now. A second call reads the file again. */
static const struct trace_file *written(void)
{
	static struct trace_file file;
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "slice.cache" TRACE_SUFFIX "%d", ledger_slot(getpid()));
	fd = open(scene_path(name), O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	CHECK_EQUAL(read(fd, &file, sizeof(file)), sizeof(file));
	close(fd);
	CHECK(file.magic == TRACE_MAGIC);
	CHECK(file.next <= TRACE_ENTRIES);
	return &file;
}

static uint64_t now(void)
{
	return written()->next;
}

/* How many entries there are of that kind and call from number `from` on, and the last of them. */
static unsigned find(uint64_t from, enum trace_kind kind, const char *call,
		     const struct trace_entry **ret_last)
{
	const struct trace_file *file = written();
	unsigned count = 0;

	for (uint64_t i = from; i < file->next; i++)
		if (file->entry[i].kind == kind &&
		    strcmp(file->call[file->entry[i].call], call) == 0) {
			*ret_last = &file->entry[i];
			count++;
		}
	return count;
}

/* The one entry of that kind and call. */
static const struct trace_entry *only(uint64_t from, enum trace_kind kind, const char *call)
{
	const struct trace_entry *entry = NULL;

	CHECK_EQUAL(find(from, kind, call, &entry), 1);
	return entry;
}

static void start(const char *subjects, const char *limit)
{
	env_set("VGPU_TRACE", subjects);
	env_set("VGPU_SIM_GPUS", "80G");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	cuda_start(0);
}

TEST(allocations)
{
	const struct trace_entry *entry;
	uint64_t from;
	CUdeviceptr address;

	start("memory", "4g");
	from = now();
	address = take(100 * MIB);
	entry = only(from, TRACE_CHARGE, "cuMemAlloc_v2");
	CHECK_EQUAL(entry->a, 100 * MIB);
	CHECK_EQUAL(entry->b, ledger_used(0));
	CHECK_EQUAL(entry->c, 4 * GIB);
	CHECK_EQUAL(entry->device, 0);
	CHECK_EQUAL(entry->reason, TRACE_NO_REASON);
	entry = only(from, TRACE_ALLOCATED, "cuMemAlloc_v2");
	CHECK_EQUAL(entry->a, 100 * MIB);
	CHECK_EQUAL(entry->b, 100 * MIB);
	from = now();
	give(address);
	CHECK_EQUAL(only(from, TRACE_REFUND, "cuMemFree_v2")->a, 100 * MIB);
	CHECK_EQUAL(only(from, TRACE_FREED, "cuMemFree_v2")->b, 100 * MIB);
}

/* The first entries are of the context, with the call that made it. */
TEST(contexts)
{
	const struct trace_file *file;

	start("memory", "4g");
	file = written();
	CHECK(file->next > 0);
	CHECK_EQUAL(file->entry[0].kind, TRACE_CHARGE);
	CHECK(strncmp(file->call[file->entry[0].call], "cu", 2) == 0);
	CHECK(strstr(file->call[file->entry[0].call], "Ctx"));
}

TEST(refused_by_the_quota)
{
	const struct trace_entry *entry;
	CUdeviceptr address = 0;
	uint64_t from;

	start("memory", "4g");
	from = now();
	CHECK_EQUAL(cuMemAlloc_v2(&address, 8 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
	entry = only(from, TRACE_REFUSED, "cuMemAlloc_v2");
	CHECK_EQUAL(entry->reason, TRACE_REASON_QUOTA);
	CHECK_EQUAL(entry->a, 8 * GIB);
	CHECK_EQUAL(entry->b, ledger_used(0));
	CHECK_EQUAL(entry->c, 4 * GIB);
	only(from, TRACE_ROOM, "cuMemAlloc_v2");
	entry = only(from, TRACE_COMPARED, "cuMemAlloc_v2");
	CHECK_EQUAL(entry->a, outside_of(0, getpid()));
	CHECK_EQUAL(entry->b + entry->c, ledger_own(0).context);
}

TEST(refused_by_the_device)
{
	const struct trace_entry *entry;
	CUdeviceptr address = 0;
	uint64_t from;

	start("memory", "200g");
	from = now();
	CHECK_EQUAL(cuMemAlloc_v2(&address, 100 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
	entry = only(from, TRACE_REFUSED, "cuMemAlloc_v2");
	CHECK_EQUAL(entry->reason, TRACE_REASON_DEVICE);
	CHECK_EQUAL(entry->a, 100 * GIB);
	only(from, TRACE_CANCELLED, "cuMemAlloc_v2");
}

/* Each subject is by itself. */
TEST(subjects)
{
	const struct trace_file *file;

	start("region", "4g");
	give(take(MIB));
	file = written();
	CHECK(file->next > 0);
	for (uint64_t i = 0; i < file->next; i++)
		CHECK_EQUAL(file->entry[i].kind / TRACE_KINDS_OF_SUBJECT, TRACE_REGION);
	CHECK_EQUAL(file->entry[0].kind, TRACE_JOINED);
}

/* `vgpu set` writes it into the region. */
TEST(changed_limit)
{
	const uint64_t limit = 2 * GIB;
	const struct trace_entry *entry;
	uint64_t from;
	int fd;

	start("region", "4g");
	give(take(MIB));
	from = now();
	fd = open(scene_path("slice.cache"), O_WRONLY | O_CLOEXEC);
	CHECK_EQUAL(
		pwrite(fd, &limit, sizeof(limit), offsetof(struct vgpu_region_file, hami.limit[0])),
		sizeof(limit));
	close(fd);
	give(take(4 * MIB));
	entry = only(from, TRACE_LIMIT, "cuMemAlloc_v2");
	CHECK_EQUAL(entry->a, 4 * GIB);
	CHECK_EQUAL(entry->b, 2 * GIB);
}
