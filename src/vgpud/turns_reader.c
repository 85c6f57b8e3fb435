/*
 * Through the reader's socket, vgpud sends a descriptor of a client's connection, and the
 * reader sends back a struct turns_message. vgpud keeps its own descriptor of the connection
 * meanwhile, so the connection stays open when the reader closes its copy.
 *
 * A clock alone does not show whether a reader is stuck. On a busy machine, or where a unit limits
 * the processor time, a reader can wait long for a processor. A reader is stuck if it has the
 * connection and sleeps at STILL consecutive looks, as it sleeps nowhere for an honest descriptor.
 *
 * A child has copies of all of vgpud's descriptors. The reader closes them before vgpud goes
 * on, so that no connection stays open longer than in vgpud.
 */
#include "turns_reader.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "file.h"
#include "say.h"
#include "sys.h"

#define LOOK_NS      (10 * NS_PER_MS)
#define STILL        5   /* consecutive looks at which a stuck reader sleeps */
#define LOOKS_MOST   100 /* after that many, the reader counts as stuck in any state */
#define LOOKS_AT_END 20
#define LOST_NS      (10 * NS_PER_S) /* a lost reader counts at least that long */
#define PEER_MOST    2               /* lost readers at which a peer's messages are not received */
#define USER_MOST    8               /* the same for a user, in all PID namespaces */
#define IDLE_NS      (3600 * NS_PER_S)

/* -- the reader's process ---------------------------------------------------------------------- */

static void look(int fd, struct turns_message *message)
{
	struct stat st;
	int flags = fcntl(fd, F_GETFL);

	message->has_descriptor = true;
	if (flags < 0 || (flags & O_ACCMODE) != O_RDWR || flags & O_PATH ||
	    sys_fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		return;
	message->may_be_region = true;
	message->device = st.st_dev;
	message->inode = st.st_ino;
}

static void receive(int client, struct turns_message *message)
{
	int fd = -1;

	message->len = sys_receive(client, &message->request, sizeof(message->request), &fd);
	if (fd < 0)
		return;
	look(fd, message);
	sys_close(fd);
}

/* Serves requests until vgpud has closed its end of the socket. */
_Noreturn static void read_all(int socket)
{
	for (;;) {
		struct turns_message message;
		int client = -1;
		char byte;

		memset(&message, 0, sizeof(message));
		while (sys_wait_readable(socket, IDLE_NS) == 0)
			;
		if (sys_receive(socket, &byte, sizeof(byte), &client) <= 0 || client < 0)
			_exit(0);
		receive(client, &message);
		sys_close(client);
		if (sys_send(socket, &message, sizeof(message), -1) != 0)
			_exit(0);
	}
}

/* Closes all descriptors but the standard streams and `kept`. */
static int close_others(int kept)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;

	if (!dir)
		return -errno;
	while ((entry = readdir(dir))) {
		int fd = atoi(entry->d_name);

		if (fd > STDERR_FILENO && fd != kept && fd != dirfd(dir))
			close(fd);
	}
	closedir(dir);
	return 0;
}

_Noreturn static void be_reader(int socket)
{
	char byte = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (close_others(socket) != 0 || sys_send(socket, &byte, sizeof(byte), -1) != 0)
		_exit(1);
	read_all(socket);
}

/* -- the reader, in vgpud ---------------------------------------------------------------------- */

/* The letter in /proc/PID/stat for the process's state; '?' where there is none. */
static char state_of(pid_t pid)
{
	char path[32], text[128];
	const char *end;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file_read(path, text, sizeof(text));
	end = strrchr(text, ')'); /* the end of the program's name */
	return end && end[1] ? end[2] : '?';
}

/* Whether the reader sleeps although it has received all that vgpud sent. */
static bool sleeps(const struct turns_reader *reader)
{
	int unread = 0;
	char state = state_of(reader->pid);

	if (ioctl(reader->fd, SIOCOUTQ, &unread) != 0 || unread > 0)
		return false;
	return state == 'S' || state == 'D';
}

/* Waits for the reader. Returns true if its socket is readable, and false if the reader is
 * stuck. */
static bool answers(const struct turns_reader *reader)
{
	unsigned still = 0;

	for (unsigned looks = 0; looks < LOOKS_MOST && still < STILL; looks++) {
		if (sys_wait_readable(reader->fd, LOOK_NS) != 0)
			return true;
		still = sleeps(reader) ? still + 1 : 0;
	}
	return false;
}

static struct turns_lost *free_entry(struct turns_reader *reader)
{
	for (unsigned i = 0; i < TURNS_LOST_MAX; i++)
		if (reader->lost[i].until_ns == 0)
			return &reader->lost[i];
	return NULL;
}

/* Kills the reader. peer: the peer that it was lost to, or NULL. Without a free entry the
 * process is never reaped, but start() makes no reader then. */
static void lose(struct turns_reader *reader, const struct turns_peer *peer)
{
	struct turns_lost *lost = free_entry(reader);

	if (reader->pid > 0 && lost)
		*lost = (struct turns_lost){.pid = reader->pid,
					    .peer = peer ? *peer
							 : (struct turns_peer){.uid = (uid_t)-1},
					    .until_ns = clock_now_ns() + LOST_NS};
	if (reader->pid > 0)
		kill(reader->pid, SIGKILL);
	if (reader->fd >= 0)
		sys_close(reader->fd);
	reader->pid = 0;
	reader->fd = -1;
}

static int start(struct turns_reader *reader)
{
	int pair[2], error = 0;
	char byte;

	if (!free_entry(reader))
		return -EAGAIN;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	reader->fd = pair[0];
	reader->pid = fork();
	if (reader->pid == 0)
		be_reader(pair[1]);
	if (reader->pid < 0)
		error = -errno;
	sys_close(pair[1]);
	if (!error && (!answers(reader) || read(reader->fd, &byte, sizeof(byte)) != sizeof(byte)))
		error = -EIO;
	if (error)
		lose(reader, NULL);
	return error;
}

/* Whether the peer's messages are received: it and its user have lost few enough readers. */
static bool is_trusted(const struct turns_reader *reader, const struct turns_peer *peer)
{
	unsigned of_peer = 0, of_user = 0;

	for (unsigned i = 0; i < TURNS_LOST_MAX; i++) {
		const struct turns_lost *lost = &reader->lost[i];

		if (lost->until_ns == 0 || lost->peer.uid != peer->uid)
			continue;
		of_user++;
		of_peer += lost->peer.space == peer->space;
	}
	return of_peer < PEER_MOST && of_user < USER_MOST;
}

int turns_reader_receive(struct turns_reader *reader, int client, const struct turns_peer *peer,
			 struct turns_message *ret_message)
{
	int passed, error = 0;
	char byte = 0;

	if (!is_trusted(reader, peer))
		return -EBUSY;
	if (!reader->pid)
		error = start(reader);
	if (!error)
		error = sys_send(reader->fd, &byte, sizeof(byte), client);
	if (error) {
		lose(reader, NULL);
		return error;
	}
	if (answers(reader) && sys_receive(reader->fd, ret_message, sizeof(*ret_message),
					   &passed) == (long)sizeof(*ret_message))
		return 0;
	say(LOG_WARNING,
	    "a program of user %u has sent a descriptor that does not close: the user's requests "
	    "for turns may be refused for some seconds",
	    (unsigned)peer->uid);
	lose(reader, peer);
	return -ETIMEDOUT;
}

struct turns_peer turns_reader_peer(int client)
{
	struct ucred credentials = {.uid = (uid_t)-1};
	socklen_t len = sizeof(credentials);
	char path[40];
	struct stat st = {.st_ino = 0};

	getsockopt(client, SOL_SOCKET, SO_PEERCRED, &credentials, &len);
	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)credentials.pid);
	if (credentials.pid <= 0 || stat(path, &st) != 0)
		st.st_ino = 0;
	return (struct turns_peer){.uid = credentials.uid, .space = st.st_ino};
}

/* -- enders ------------------------------------------------------------------------------------ */

/* Reaps children that have exited. Returns how many still live. */
static unsigned reap(struct turns_reader *reader)
{
	unsigned living = 0;

	for (unsigned i = 0; i < TURNS_LOST_MAX; i++) {
		pid_t *pid = &reader->lost[i].pid;

		if (*pid > 0 && waitpid(*pid, NULL, WNOHANG) != 0)
			*pid = 0;
		living += *pid > 0;
	}
	for (unsigned i = 0; i < TURNS_ENDERS_MAX; i++) {
		pid_t *pid = &reader->ender[i];

		if (*pid > 0 && waitpid(*pid, NULL, WNOHANG) != 0)
			*pid = 0;
		living += *pid > 0;
	}
	return living;
}

static pid_t *free_ender(struct turns_reader *reader)
{
	reap(reader);
	for (unsigned i = 0; i < TURNS_ENDERS_MAX; i++)
		if (reader->ender[i] == 0)
			return &reader->ender[i];
	return NULL;
}

int turns_reader_end(struct turns_reader *reader, const int *fds, unsigned count)
{
	pid_t *ender = free_ender(reader), pid;
	int pair[2];
	char byte;

	if (!ender)
		return -EAGAIN;
	if (pipe2(pair, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		close(pair[1]);
		_exit(read(pair[0], &byte, sizeof(byte)) !=
		      0); /* blocks until vgpud has closed them */
	}
	for (unsigned i = 0; pid > 0 && i < count; i++)
		close(fds[i]);
	close(pair[0]);
	close(pair[1]);
	if (pid < 0)
		return -EAGAIN;
	*ender = pid;
	return 0;
}

/* -- all of them ------------------------------------------------------------------------------- */

void turns_reader_init(struct turns_reader *reader)
{
	*reader = (struct turns_reader){.fd = -1};
}

void turns_reader_tick(struct turns_reader *reader)
{
	uint64_t now_ns = clock_now_ns();

	reap(reader);
	for (unsigned i = 0; i < TURNS_LOST_MAX; i++) {
		struct turns_lost *lost = &reader->lost[i];

		if (lost->pid == 0 && now_ns >= lost->until_ns)
			lost->until_ns = 0;
	}
}

/* A child that is stuck is left to init. */
void turns_reader_close(struct turns_reader *reader)
{
	lose(reader, NULL);
	for (unsigned looks = 0; looks < LOOKS_AT_END && reap(reader) > 0; looks++)
		sys_sleep_ns(LOOK_NS);
}
