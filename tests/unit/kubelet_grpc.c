/* The gRPC server of the kubelet's daemons, while it cannot accept connections. */
#include <errno.h>
#include <sys/socket.h>

#include "clock.h"
#include "grpc.h"
#include "h2.h"
#include "place.h"

#define SPAN_NS  (300 * NS_PER_MS) /* while which no descriptor is free */
#define PAUSE_NS (50 * NS_PER_MS)  /* the server pauses for longer than this */

/* No descriptor is free until then, on CLOCK_MONOTONIC. */
static uint64_t free_at_ns;
static unsigned accepts;
int __real_accept4(int fd, struct sockaddr *address, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *len, int flags);

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *len, int flags)
{
	accepts++;
	if (clock_now_ns() >= free_at_ns)
		return __real_accept4(fd, address, len, flags);
	errno = EMFILE;
	return -1;
}

static int dial(const char *path)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un address;

	assert_int_equal(h2_address(path, &address), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void on_bytes(void *loop, uint32_t events)
{
	(void)events;
	loop_end(loop);
}

static int lowest_free_descriptor(void)
{
	int fd = dup(STDERR_FILENO);

	close(fd);
	return fd;
}

UNIT_TEST(test_no_descriptor_is_free_for_a_connection)
{
	static const struct grpc_method none[] = {{NULL, NULL, false}};
	struct fault fault = {""};
	int lowest = lowest_free_descriptor();
	struct loop *loop = loop_new();
	struct grpc_server *server = grpc_serve(loop, here.path, none, NULL, &fault);
	struct loop_watch client = {-1, on_bytes, loop};
	uint64_t began_ns = clock_now_ns();

	assert_non_null(server);
	free_at_ns = began_ns + SPAN_NS;
	client.fd = dial(here.path);
	assert_int_equal(loop_add(loop, &client), 0);
	loop_run(loop); /* until the server's first bytes come */
	assert_true(accepts >= 2);
	assert_true(accepts <= 1 + (clock_now_ns() - began_ns) / PAUSE_NS);
	close(client.fd);
	grpc_server_stop(server);
	loop_free(loop);
	assert_int_equal(lowest_free_descriptor(), lowest);
}
