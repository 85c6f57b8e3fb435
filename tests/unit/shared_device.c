/*
 * The device of shared_device.h. It goes from change to change: device_step runs the owner's work
 * until the quantum ends, the work ends, or the caller's time is reached.
 */
#include "shared_device.h"
#include "chance.h"

void device_begin(struct shared_device *device, uint64_t at_ns)
{
	device->time_ns = device->from_ns = at_ns;
	device->quantum_ns = QUANTUM_NS;
}

uint64_t device_left_ns(const struct shared_device *device, unsigned process)
{
	return device->queue[process].given_ns - device->queue[process].done_ns;
}

bool device_is_wanted(const struct shared_device *device, unsigned except)
{
	for (unsigned i = 0; i < PROCESSES_MAX; i++)
		if (i != except && device_left_ns(device, i))
			return true;
	return false;
}

static void device_change(struct shared_device *device)
{
	unsigned next = device->owner;

	do
		next = (next + 1) % PROCESSES_MAX;
	while (next != device->owner && !device_left_ns(device, next));
	device->from_ns = device->time_ns + (next != device->owner ? CHANGE_NS : 0);
	device->owner = next;
	device->chance = chance_after(device->chance);
	device->quantum_ns = QUANTUM_NS / 2 + (device->chance >> 33) % QUANTUM_NS;
}

static void device_note(struct device_queue *queue, uint64_t from_ns, uint64_t ns)
{
	struct device_span *last = &queue->spans[(queue->span_count + SPANS - 1) % SPANS];

	if (!queue->span_count || last->until_ns != from_ns) {
		last = &queue->spans[queue->span_count++ % SPANS];
		*last = (struct device_span){from_ns, from_ns, queue->done_ns};
	}
	last->until_ns += ns;
	queue->done_ns += ns;
}

/* One step: to until_ns at most, and to the next change. */
static void device_step(struct shared_device *device, uint64_t until_ns)
{
	uint64_t left_ns = device_left_ns(device, device->owner), ns;
	uint64_t quantum_ns = device->from_ns + device->quantum_ns;

	if (device->from_ns > device->time_ns) {
		device->time_ns = device->from_ns < until_ns ? device->from_ns : until_ns;
		return;
	}
	if (quantum_ns == device->time_ns ||
	    (!left_ns && device_is_wanted(device, device->owner))) {
		device_change(device);
		return;
	}
	ns = (until_ns < quantum_ns ? until_ns : quantum_ns) - device->time_ns;
	if (left_ns) {
		ns = left_ns < ns ? left_ns : ns;
		device_note(&device->queue[device->owner], device->time_ns, ns);
	}
	device->time_ns += ns;
}

void device_advance(struct shared_device *device, uint64_t until_ns)
{
	while (device->time_ns < until_ns)
		device_step(device, until_ns);
}

uint64_t device_expected_ns(const struct shared_device *device, unsigned process)
{
	uint64_t left_ns[PROCESSES_MAX], at_ns = device->time_ns, from_ns = device->from_ns;
	uint64_t quantum_ns = device->quantum_ns;
	unsigned owner = device->owner;

	for (unsigned i = 0; i < PROCESSES_MAX; i++)
		left_ns[i] = device_left_ns(device, i);
	while (left_ns[process]) {
		uint64_t ns = left_ns[owner];
		unsigned next = owner;

		if (at_ns < from_ns)
			at_ns = from_ns;
		do
			next = (next + 1) % PROCESSES_MAX;
		while (next != owner && !left_ns[next]);
		if (next != owner && ns > quantum_ns - (at_ns - from_ns))
			ns = quantum_ns - (at_ns - from_ns);
		left_ns[owner] -= ns;
		at_ns += ns;
		if (next != owner) {
			owner = next;
			from_ns = at_ns + CHANGE_NS;
			quantum_ns = QUANTUM_NS;
		}
	}
	return at_ns;
}
