/*
 * A program that asks vgpud for the file of turns, and a vgpud that answers as it should, or with
 * nonsense, or not at all. Only what is sealed and has the right size is used, and nothing is
 * waited for longer than the caller has patience.
 */
#include "turn_offer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "place.h"
#include "sys.h"
#include "turn.h"

#define SEALS       (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)
#define UUID        "GPU-0"
#define PATIENCE_NS (2000 * NS_PER_MS)
#define SHORT_NS    (30 * NS_PER_MS)

/* What the vgpud of a test answers. */
struct reply {
	const void *bytes;
	size_t len;
	int fds[2];
	unsigned fd_count;
};

static const struct turn_offer_answer good = {TURN_OFFER_MAGIC, VGPU_TURNS_VERSION,
					      TURN_OFFER_FILE};

static int serve_at(const char *path, int backlog)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strcpy(address.sun_path, path);
	unlink(path);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, backlog), 0);
	return fd;
}

static void send_reply(int fd, const struct reply *reply)
{
	struct iovec part = {(void *)(uintptr_t)reply->bytes, reply->len};
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} control = {.bytes = {0}};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (reply->fd_count) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(reply->fd_count * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(reply->fd_count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), reply->fds, reply->fd_count * sizeof(int));
	}
	sendmsg(fd, &message, MSG_NOSIGNAL);
}

/* A process that takes one request, which it checks, and answers it. */
static pid_t answers_once(int listener, const struct reply *reply)
{
	pid_t child = fork();
	char request[256];
	int fd, passed;
	long len;

	if (child != 0)
		return child;
	alarm(20);
	fd = accept(listener, NULL, NULL);
	for (;;) {
		len = sys_receive(fd, request, sizeof(request), &passed);
		if (len != -EAGAIN)
			break;
		usleep(1000);
	}
	if (!turn_offer_is_request(request, (size_t)len) || passed < 0)
		_exit(1);
	if (reply->bytes)
		send_reply(fd, reply);
	_exit(0);
}

static int asks_for(const char *path, const struct turn_file *have, uint64_t patience_ns)
{
	int region = open("/dev/null", O_RDWR), answer;

	answer = turn_offer_ask(path, UUID, region, have, patience_ns);
	assert_int_equal(fcntl(region, F_GETFD) >= 0, 1);
	close(region);
	return answer;
}

/* What the program gets where vgpud answers so. */
static int gets(const struct reply *reply)
{
	int listener = serve_at(here.path, 8), answer, status;
	pid_t child = answers_once(listener, reply);

	answer = asks_for(here.path, NULL, PATIENCE_NS);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(listener);
	return answer;
}

static int make_file(size_t size, int seals)
{
	int fd = memfd_create("turns", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static int joins(int fd, struct turn *turn)
{
	static struct turn_account account;
	const struct turn_slice slice = {
		.key = 7, .weight = 30, .limit_pct = 30, .account = &account};
	struct fault fault = {""};
	int error = turn_join_offered(turn, fd, &slice, &fault);

	assert_int_equal(error != 0, *fault.text != '\0');
	return error;
}

UNIT_TEST(test_given)
{
	static struct turn turn;
	int file = make_file(sizeof(struct vgpu_turns_file), SEALS), fd;
	struct reply reply = {&good, sizeof(good), {file}, 1};

	fd = gets(&reply);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(joins(fd, &turn), 0);
	assert_true(turn.is_first);
	assert_true(turn_watch(&turn));
	turn_ask(&turn, 1000 * NS_PER_S);
	turn_leave(&turn, 1000 * NS_PER_S);
	close(file);
}

/* What a vgpud that is no vgpud, or of another version, may hand over. */
UNIT_TEST(test_not_taken)
{
	static struct turn turn;
	size_t size = sizeof(struct vgpu_turns_file);
	int pipes[2];

	assert_int_equal(joins(make_file(size, F_SEAL_SHRINK | F_SEAL_GROW), &turn), -EINVAL);
	assert_int_equal(joins(make_file(size, F_SEAL_SEAL | F_SEAL_GROW), &turn), -EINVAL);
	assert_int_equal(joins(make_file(size - 4096, SEALS), &turn), -EINVAL);
	assert_int_equal(joins(make_file(size + 4096, SEALS), &turn), -EINVAL);
	assert_int_equal(joins(make_file(size, SEALS | F_SEAL_WRITE), &turn), -EPERM);
	assert_int_equal(joins(open("/dev/null", O_RDWR), &turn), -EINVAL);
	assert_int_equal(joins(open("/tmp", O_RDONLY), &turn), -EINVAL);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(joins(pipes[0], &turn), -EINVAL);
	close(pipes[1]);
	assert_null(turn.file.file);
}

static unsigned count_files(void)
{
	unsigned count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

UNIT_TEST(test_answers)
{
	struct turn_offer_answer answer = good;
	char more[sizeof(good) + 1] = {0};
	struct reply reply = {&answer, sizeof(answer), {0, 0}, 0};
	unsigned before = count_files();

	answer.kind = TURN_OFFER_SAME;
	assert_int_equal(gets(&reply), -EALREADY);
	answer.kind = TURN_OFFER_REFUSED;
	assert_int_equal(gets(&reply), -EPERM);
	answer.kind = TURN_OFFER_FILE; /* without one */
	assert_int_equal(gets(&reply), -EPROTO);
	answer.kind = 77;
	assert_int_equal(gets(&reply), -EPROTO);
	reply.fds[0] = reply.fds[1] = open("/dev/null", O_RDWR);
	reply.fd_count = 1;
	assert_int_equal(gets(&reply), -EPROTO);
	answer.kind = TURN_OFFER_SAME; /* with one */
	assert_int_equal(gets(&reply), -EPROTO);
	answer.kind = TURN_OFFER_FILE;
	reply.fd_count = 2;
	assert_int_equal(gets(&reply), -EPROTO);
	reply.fd_count = 1;
	answer.version++;
	assert_int_equal(gets(&reply), -EPROTO);
	answer.version--;
	answer.magic++;
	assert_int_equal(gets(&reply), -EPROTO);
	answer.magic--;
	reply.len--;
	assert_int_equal(gets(&reply), -EPROTO);
	memcpy(more, &answer, sizeof(answer));
	reply.bytes = more;
	reply.len = sizeof(more);
	assert_int_equal(gets(&reply), -EMSGSIZE);
	reply.bytes = NULL; /* it closes the connection */
	assert_int_equal(gets(&reply), -EPROTO);
	close(reply.fds[0]);
	assert_int_equal(count_files(), before);
}

static uint64_t asks_in_vain(int error)
{
	uint64_t began_ns = clock_now_ns();

	assert_int_equal(asks_for(here.path, NULL, SHORT_NS), error);
	return clock_now_ns() - began_ns;
}

/* There is none; it is dead; it is stopped; its queue is full. */
UNIT_TEST(test_silent)
{
	unsigned before = count_files();
	int listener, queued = -1;

	asks_in_vain(-ENOENT);
	close(serve_at(here.path, 1));
	asks_in_vain(-ECONNREFUSED);
	listener = serve_at(here.path, 0);
	assert_true(asks_in_vain(-ETIMEDOUT) >= SHORT_NS);
	queued = sys_connect(here.path);
	asks_in_vain(-ETIMEDOUT);
	close(queued);
	close(listener);
	assert_int_equal(count_files(), before);
	assert_int_equal(turn_offer_ask("/tmp/" __FILE__ __FILE__ __FILE__ __FILE__ __FILE__
						__FILE__ __FILE__ __FILE__ __FILE__ __FILE__,
					UUID, -1, NULL, SHORT_NS),
			 -ENAMETOOLONG);
}

/* The process may go on with others in the former file for a moment; that file is nobody's. */
UNIT_TEST(test_retired)
{
	static struct turn old, new;
	size_t size = sizeof(struct vgpu_turns_file);

	assert_int_equal(joins(make_file(size, SEALS), &old), 0);
	turn_ask(&old, 1000 * NS_PER_S);
	turn_retire(&old, 1000 * NS_PER_S);
	assert_false(turn_watch(&old));
	assert_int_equal(turn_ask(&old, 1001 * NS_PER_S).kind, TURN_ALONE);
	assert_int_equal(joins(make_file(size, SEALS), &new), 0);
	turn_forget(&old);
	turn_forget(&new);
}
