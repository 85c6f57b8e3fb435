/*
 * Fuzzes what vgpud and a program say to each other about the file of turns (turn_offer.h). The
 * first byte of the input says which descriptors come along, and the rest is the message: of a
 * program to vgpud, and of vgpud to a program. A message that is taken for a request has a name of
 * a GPU that ends; a program takes no descriptor but one that comes with a whole answer, and leaves
 * none open.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sys.h"
#include "turn_offer.h"

#define MOST_FDS 3
#define LAST_FD  64 /* sys_raise_fd gives those from 40 on */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_sys_connect(const char *path);

static int program_end = -1;

static void must(bool holds)
{
	if (!holds)
		abort();
}

int __wrap_sys_connect(const char *path)
{
	(void)path;
	return sys_raise_fd(program_end);
}

static void send_message(int fd, const void *bytes, size_t len, unsigned fd_count)
{
	int fds[MOST_FDS];
	struct iovec part = {(void *)(uintptr_t)bytes, len};
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(MOST_FDS * sizeof(int))];
	} control = {.bytes = {0}};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	for (unsigned i = 0; i < MOST_FDS; i++)
		fds[i] = STDERR_FILENO;
	if (fd_count) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, fd_count * sizeof(int));
	}
	must(sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)len);
}

static unsigned count_files(void)
{
	unsigned count = 0;

	for (int fd = 3; fd < LAST_FD; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void check_request(const uint8_t *bytes, size_t len)
{
	struct turn_offer_request request;

	if (!turn_offer_is_request(bytes, len))
		return;
	must(len == sizeof(request));
	memcpy(&request, bytes, sizeof(request));
	must(memchr(request.uuid, '\0', sizeof(request.uuid)) != NULL);
	must(request.uuid[0] != '\0' && !strchr(request.uuid, '/'));
}

static void check_answer(const uint8_t *bytes, size_t len, unsigned fd_count)
{
	int ends[2], answer;
	unsigned before;

	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
	before = count_files();
	program_end = ends[0];
	send_message(ends[1], bytes, len, fd_count);
	answer = turn_offer_ask("", "GPU-0", -1, NULL, 1000000);
	if (answer >= 0) {
		must(len == sizeof(struct turn_offer_answer) && fd_count == 1);
		must(fcntl(answer, F_GETFD) == FD_CLOEXEC);
		close(answer);
	} else {
		must(answer != -EAGAIN && answer != -EBADF);
	}
	must(count_files() == before - 1); /* its end */
	close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	check_request(data + 1, size - 1);
	check_answer(data + 1, size - 1, data[0] % (MOST_FDS + 1));
	return 0;
}
