/*
 * No call waits but the poll for the answer, and the pauses while vgpud's queue is full. So a vgpud
 * that is stopped, or was killed between two lines, costs its clients their patience and no more.
 */
#include "turn_offer.h"

#include <errno.h>
#include <string.h>

#include "clock.h"
#include "sys.h"

#define AGAIN_NS NS_PER_MS

_Static_assert(sizeof(struct turn_offer_request) == 128, "layout");
_Static_assert(sizeof(struct turn_offer_answer) == 16, "layout");

static bool is_text(const char *uuid, size_t len)
{
	size_t used = 0;

	while (used < len && uuid[used] > ' ' && uuid[used] < 127 && uuid[used] != '/')
		used++;
	for (size_t i = used; i < len; i++)
		if (uuid[i] != '\0')
			return false;
	return used > 0 && used < len;
}

bool turn_offer_is_request(const void *bytes, size_t len)
{
	struct turn_offer_request request;

	if (len != sizeof(request))
		return false;
	memcpy(&request, bytes, sizeof(request));
	return request.magic == TURN_OFFER_MAGIC && request.version == VGPU_TURNS_VERSION &&
	       is_text(request.uuid, sizeof(request.uuid));
}

static uint64_t left_ns(uint64_t deadline_ns)
{
	uint64_t now_ns = clock_now_ns();

	return now_ns < deadline_ns ? deadline_ns - now_ns : 0;
}

static int connect_by(const char *socket, uint64_t deadline_ns)
{
	int fd;

	while ((fd = sys_connect(socket)) == -EAGAIN) {
		if (left_ns(deadline_ns) < AGAIN_NS)
			return -ETIMEDOUT;
		sys_sleep_ns(AGAIN_NS);
	}
	return fd;
}

/* Returns the result of turn_offer_ask for the answer. Takes the descriptor. */
static int judge(const struct turn_offer_answer *answer, long len, int passed)
{
	bool is_answer = len == (long)sizeof(*answer) && answer->magic == TURN_OFFER_MAGIC &&
			 answer->version == VGPU_TURNS_VERSION;

	if (is_answer && answer->kind == TURN_OFFER_FILE && passed >= 0)
		return passed;
	if (passed >= 0)
		sys_close(passed);
	if (is_answer && passed < 0 && answer->kind == TURN_OFFER_SAME)
		return -EALREADY;
	return is_answer && passed < 0 && answer->kind == TURN_OFFER_REFUSED ? -EPERM : -EPROTO;
}

static int receive(int fd, uint64_t deadline_ns)
{
	struct turn_offer_answer answer = {.magic = 0};
	int passed = -1, ready;
	long len;

	ready = sys_wait_readable(fd, left_ns(deadline_ns));
	if (ready <= 0)
		return ready < 0 ? ready : -ETIMEDOUT;
	len = sys_receive(fd, &answer, sizeof(answer), &passed);
	return len < 0 ? (int)len : judge(&answer, len, passed);
}

int turn_offer_ask(const char *socket, const char *uuid, int region_fd,
		   const struct turn_file *have, uint64_t patience_ns)
{
	struct turn_offer_request request = {.magic = TURN_OFFER_MAGIC,
					     .version = VGPU_TURNS_VERSION};
	uint64_t deadline_ns = clock_now_ns() + patience_ns;
	size_t len = strnlen(uuid, sizeof(request.uuid));
	int fd = connect_by(socket, deadline_ns), result;

	if (fd < 0)
		return fd;
	memcpy(request.uuid, uuid, len);
	if (have && have->shared.is_sealed && shared_file_fd(&have->shared) >= 0) {
		request.device = have->shared.device;
		request.inode = have->shared.inode;
	}
	result = sys_send(fd, &request, sizeof(request), region_fd);
	if (!result)
		result = receive(fd, deadline_ns);
	sys_close(fd);
	return result;
}
