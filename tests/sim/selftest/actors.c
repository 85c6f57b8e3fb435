/* See actors.h. */
#include "actors.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "departure.h"
#include "pass_fd.h"

struct actor exporter, importer;
struct board *board;
static int sockets[2]; /* descriptors go from 0 to 1 */

void actors_begin(void)
{
	selftest_begin("1x8G");
	board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	CHECK(board != MAP_FAILED);
	CHECK(!socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sockets));
}

static void act(int from, int to)
{
	void (*step)(void);

	selftest_context();
	while (read(from, &step, sizeof step) == (ssize_t)sizeof step) {
		step();
		CHECK_EQUAL(write(to, "", 1), 1);
	}
	_exit(0);
}

struct actor actor_start(void)
{
	int to[2], from[2];

	CHECK(!pipe(to) && !pipe(from));
	int departure = departure_prepare();
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		departure_begin(departure);
		close(to[1]);
		close(from[0]);
		act(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	return (struct actor){pid, to[1], from[0], departure};
}

void tell(const struct actor *actor, void (*step)(void))
{
	char byte;

	CHECK_EQUAL(write(actor->to, &step, sizeof step), sizeof step);
	CHECK_EQUAL(read(actor->from, &byte, 1), 1);
}

void actor_kill(const struct actor *actor)
{
	int status;

	kill(actor->pid, SIGKILL);
	CHECK_EQUAL(waitpid(actor->pid, &status, 0), actor->pid);
	departure_wait(actor->departure);
	close(actor->to);
	close(actor->from);
}

static void nothing(void)
{
}

void actors_start(void)
{
	exporter = actor_start();
	importer = actor_start();
	tell(&exporter, nothing);
	tell(&importer, nothing);
}

void check_mib(long long exporters, long long importers, long long device, int line)
{
	const long long context = CONTEXT, mib = MIB;
	size_t fixed = 0;

	if (exporters >= 0) {
		fixed += CONTEXT + FIRST;
		check_equal(__FILE__, line, "exporter", selftest_process_bytes(0, exporter.pid),
			    context + exporters * mib);
	}
	if (importers >= 0) {
		fixed += CONTEXT + FIRST;
		check_equal(__FILE__, line, "importer", selftest_process_bytes(0, importer.pid),
			    context + importers * mib);
	}
	check_equal(__FILE__, line, "device", (long long)(selftest_used(0) - fixed) / mib, device);
}

void fd_send(int fd)
{
	pass_fd(sockets[0], fd);
	close(fd);
}

int fd_receive(void)
{
	return take_fd(sockets[1]);
}
