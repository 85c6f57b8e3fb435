/*
 * Each call is made by syscall(2), which every libc has. call() restores the kernel's own negative
 * errno and leaves errno as it was.
 */
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

#ifndef F_OFD_GETLK /* glibc 2.17 has not heard of them */
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

#ifndef F_GET_SEALS /* nor of these */
#define F_GET_SEALS 1034
#endif

long (*sys_fault)(long number);

/* One system call, with up to six arguments. */
#define CALL(...) CALL_(__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define CALL_(number, a, b, c, d, e, f, ...) \
	call(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static long call(long number, long a, long b, long c, long d, long e, long f)
{
	int saved = errno;
	long result;

#ifdef VGPU_FAULTS
	if (sys_fault && (result = sys_fault(number)) != 0)
		return result;
#endif
	result = syscall(number, a, b, c, d, e, f);
	if (result == -1)
		result = -errno;
	errno = saved;
	return result;
}

int sys_open(const char *path, int flags, unsigned mode)
{
	long fd;

	do
		fd = CALL(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, mode);
	while (fd == -EINTR);
	return (int)fd;
}

static int check_regular(int fd)
{
	struct stat st;
	int error = sys_fstat(fd, &st);

	if (error)
		return error;
	return S_ISREG(st.st_mode)   ? 0
	       : S_ISLNK(st.st_mode) ? -ELOOP
	       : S_ISDIR(st.st_mode) ? -EISDIR
				     : -ENXIO;
}

/* The file itself is held by a descriptor that opens nothing, and then opened by that. */
int sys_open_regular(const char *path, int flags)
{
	int held = sys_open(path, O_PATH | O_NOFOLLOW, 0), fd;
	char link[32];

	if (held < 0)
		return held;
	fd = check_regular(held);
	if (!fd) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", held);
		fd = sys_open(link, flags & ~O_NOFOLLOW, 0);
		if (fd == -ENOENT || fd == -ENOTDIR)
			fd = sys_open(path, flags | O_NOFOLLOW, 0);
	}
	sys_close(held);
	return fd;
}

int sys_close(int fd)
{
	return (int)CALL(SYS_close, fd); /* Linux closes it even where it says EINTR */
}

#define FD_LEAST      40 /* from 64 on the table may have to grow: 8 ms in a process with threads */
#define FD_LEAST_ELSE 3

int sys_raise_fd(int fd)
{
	long raised;

	if (fd >= FD_LEAST)
		return fd;
	raised = CALL(SYS_fcntl, fd, F_DUPFD_CLOEXEC, FD_LEAST);
	if (raised < 0 && fd >= FD_LEAST_ELSE)
		return fd;
	if (raised < 0)
		raised = CALL(SYS_fcntl, fd, F_DUPFD_CLOEXEC, FD_LEAST_ELSE);
	sys_close(fd);
	return raised < 0 ? -EMFILE : (int)raised;
}

int sys_fstat(int fd, struct stat *ret_stat)
{
	return (int)CALL(SYS_fstat, fd,
			 ret_stat); /* 64-bit kernels and libcs agree on struct stat */
}

int sys_stat(const char *path, struct stat *ret_stat)
{
	return (int)CALL(SYS_newfstatat, AT_FDCWD, path, ret_stat, 0);
}

int sys_ftruncate(int fd, uint64_t size_bytes)
{
	long result;

	do
		result = CALL(SYS_ftruncate, fd, size_bytes);
	while (result == -EINTR);
	return (int)result;
}

int sys_fchmod(int fd, unsigned mode)
{
	return (int)CALL(SYS_fchmod, fd, mode);
}

int sys_fchown(int fd, int user, int group)
{
	return (int)CALL(SYS_fchown, fd, user, group);
}

int sys_fsync(int fd)
{
	long result;

	do
		result = CALL(SYS_fsync, fd);
	while (result == -EINTR);
	return (int)result;
}

int sys_rename(const char *from, const char *to)
{
	return (int)CALL(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}

int sys_may_write(const char *path)
{
	return (int)CALL(SYS_faccessat, AT_FDCWD, path, W_OK);
}

int sys_unlink(const char *path)
{
	return (int)CALL(SYS_unlinkat, AT_FDCWD, path, 0);
}

long sys_readlink(const char *path, char *buf, size_t len)
{
	long result = CALL(SYS_readlinkat, AT_FDCWD, path, buf, len);

	if (result >= (long)len)
		return -ENAMETOOLONG;
	if (result >= 0)
		buf[result] = '\0';
	return result;
}

/* at: the first byte's offset; NULL: the file's own offset. */
static long read_all(int fd, void *buf, size_t len, const uint64_t *at)
{
	size_t done = 0;

	while (done < len) {
		char *to = (char *)buf + done;
		long n = at ? CALL(SYS_pread64, fd, to, len - done, *at + done)
			    : CALL(SYS_read, fd, to, len - done);

		if (n == -EINTR)
			continue;
		if (n < 0)
			return n;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (long)done;
}

long sys_read(int fd, void *buf, size_t len)
{
	return read_all(fd, buf, len, NULL);
}

long sys_read_at(int fd, void *buf, size_t len, uint64_t offset)
{
	return read_all(fd, buf, len, &offset);
}

int sys_write_all(int fd, const void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		long n = CALL(SYS_write, fd, (const char *)buf + done, len - done);

		if (n == -EINTR)
			continue;
		if (n < 0)
			return (int)n;
		done += (size_t)n;
	}
	return 0;
}

#define SIGNAL_BIT(number) ((uint64_t)1 << ((number)-1))

/* The signal is blocked for the thread, and taken away if the write raised it and it was not there
 * before. */
void sys_write_line(int fd, const void *buf, size_t len)
{
	uint64_t pipe = SIGNAL_BIT(SIGPIPE), before, pending = 0;
	struct timespec at_once = {0, 0};

	if (CALL(SYS_rt_sigprocmask, SIG_BLOCK, &pipe, &before, sizeof(pipe)) != 0)
		return;
	CALL(SYS_rt_sigpending, &pending, sizeof(pending));
	if (CALL(SYS_write, fd, buf, len) == -EPIPE && !(pending & pipe))
		CALL(SYS_rt_sigtimedwait, &pipe, NULL, &at_once, sizeof(pipe));
	CALL(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof(before));
}

/* The kernel's struct linux_dirent64 (getdents64(2)), which libc does not declare. */
struct directory_entry {
	uint64_t inode;
	int64_t offset;
	uint16_t length;
	uint8_t type;
	char name[];
};

static bool is_dot(const char *name)
{
	return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static int each_entry(const char *buf, long len, int (*each)(void *, const char *), void *arg)
{
	for (long at = 0; at < len;) {
		const struct directory_entry *entry = (const void *)(buf + at);
		int result = is_dot(entry->name) ? 0 : each(arg, entry->name);

		if (result)
			return result;
		at += entry->length;
	}
	return 0;
}

int sys_list_directory(const char *path, int (*each)(void *arg, const char *name), void *arg)
{
	_Alignas(struct directory_entry) char buf[2048];
	int fd = sys_open(path, O_RDONLY | O_DIRECTORY, 0), result = 0;
	long len;

	if (fd < 0)
		return fd;
	while (result == 0 && (len = CALL(SYS_getdents64, fd, buf, sizeof(buf))) != 0)
		result = len < 0 ? (int)len : each_entry(buf, len, each, arg);
	sys_close(fd);
	return result;
}

static int map(size_t len, int protection, int flags, int fd, void **ret_addr)
{
	long addr = CALL(SYS_mmap, NULL, len, protection, flags, fd, 0);

	if (addr < 0 && addr > -4096)
		return (int)addr;
	*ret_addr = (void *)addr;
	return 0;
}

int sys_map_shared(int fd, size_t len, bool writable, void **ret_addr)
{
	return map(len, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, ret_addr);
}

int sys_map_zeros_over(void *addr, size_t len)
{
	long result = CALL(SYS_mmap, addr, len, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	return result < 0 && result > -4096 ? (int)result : 0;
}

int sys_map_private(size_t len, void **ret_addr)
{
	return map(len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, ret_addr);
}

int sys_unmap(void *addr, size_t len)
{
	return (int)CALL(SYS_munmap, addr, len);
}

static struct flock bytes_lock(short type, uint64_t offset, uint64_t count)
{
	return (struct flock){.l_type = type,
			      .l_whence = SEEK_SET,
			      .l_start = (off_t)offset,
			      .l_len = (off_t)count};
}

/* None of these waits for a lock, but on a file system of the network for its server. */
static long lock_call(int fd, int command, struct flock *lock)
{
	long result;

	do
		result = CALL(SYS_fcntl, fd, command, lock);
	while (result == -EINTR);
	return result;
}

int sys_lock_byte(int fd, uint64_t offset)
{
	struct flock lock = bytes_lock(F_WRLCK, offset, 1);

	return (int)lock_call(fd, F_OFD_SETLK, &lock);
}

int sys_share_byte(int fd, uint64_t offset)
{
	struct flock lock = bytes_lock(F_RDLCK, offset, 1);

	return (int)lock_call(fd, F_OFD_SETLK, &lock);
}

int sys_unlock_byte(int fd, uint64_t offset)
{
	struct flock lock = bytes_lock(F_UNLCK, offset, 1);

	return (int)lock_call(fd, F_OFD_SETLK, &lock);
}

int sys_byte_is_locked(int fd, uint64_t offset)
{
	return sys_bytes_are_locked(fd, offset, 1);
}

int sys_bytes_are_locked(int fd, uint64_t offset, uint64_t count)
{
	struct flock lock = bytes_lock(F_WRLCK, offset, count);
	long result = lock_call(fd, F_OFD_GETLK, &lock);

	return result < 0 ? (int)result : lock.l_type != F_UNLCK;
}

int sys_mark_file(int fd, int number)
{
	long result = CALL(SYS_fcntl, fd, F_SETOWN, sys_getpid());

	return result < 0 ? (int)result : (int)CALL(SYS_fcntl, fd, F_SETSIG, number);
}

int sys_read_mark(int fd, int *ret_pid, int *ret_number)
{
	long pid = CALL(SYS_fcntl, fd, F_GETOWN, 0), number;

	if (pid < 0)
		return (int)pid;
	number = CALL(SYS_fcntl, fd, F_GETSIG, 0);
	if (number < 0)
		return (int)number;
	*ret_pid = (int)pid;
	*ret_number = (int)number;
	return 0;
}

int sys_seals(int fd)
{
	return (int)CALL(SYS_fcntl, fd, F_GET_SEALS, 0);
}

/* -- sockets ---------------------------------------------------------------------------------- */

int sys_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t len = strlen(path);
	long fd, error;

	if (len >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, len);
	fd = CALL(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return (int)fd;
	fd = sys_raise_fd((int)fd);
	if (fd < 0)
		return (int)fd;
	error = CALL(SYS_connect, fd, &address, sizeof(address));
	if (error < 0)
		sys_close((int)fd);
	return error < 0 ? (int)error : (int)fd;
}

/* Room for a descriptor along with a message. */
union passed {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int))];
};

int sys_send(int fd, const void *buf, size_t len, int passed)
{
	struct iovec part = {(void *)(uintptr_t)buf, len};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	union passed control;
	long sent;

	if (passed >= 0) {
		memset(&control, 0, sizeof(control));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &passed, sizeof(passed));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
	}
	sent = CALL(SYS_sendmsg, fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	return sent < 0 ? (int)sent : 0;
}

/* Closes all descriptors that came along but one; how many there were. */
static size_t take_passed(const struct msghdr *message, const union passed *control,
			  int *ret_passed)
{
	const unsigned char *bytes = CMSG_DATA(&control->header);
	size_t count;

	if (message->msg_controllen < sizeof(control->header) ||
	    control->header.cmsg_level != SOL_SOCKET || control->header.cmsg_type != SCM_RIGHTS)
		return 0;
	count = (control->header.cmsg_len - CMSG_LEN(0)) / sizeof(int);
	for (size_t i = 0; i < count; i++) {
		int fd;

		memcpy(&fd, bytes + i * sizeof(fd), sizeof(fd));
		if (i == 0)
			*ret_passed = fd;
		else
			sys_close(fd);
	}
	return count;
}

long sys_receive(int fd, void *buf, size_t len, int *ret_passed)
{
	struct iovec part = {buf, len};
	union passed control;
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	size_t count;
	long got;

	*ret_passed = -1;
	do
		got = CALL(SYS_recvmsg, fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (got == -EINTR);
	if (got < 0)
		return got;
	count = take_passed(&message, &control, ret_passed);
	if (count <= 1 && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return got;
	if (count)
		sys_close(*ret_passed);
	*ret_passed = -1;
	return message.msg_flags & MSG_TRUNC ? -EMSGSIZE : -EPROTO;
}

int sys_wait_readable(int fd, uint64_t timeout_ns)
{
	struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / NS_PER_S),
				   .tv_nsec = (long)(timeout_ns % NS_PER_S)};
	struct pollfd poll = {.fd = fd, .events = POLLIN};
	long result = CALL(SYS_ppoll, &poll, 1, &timeout, NULL, 0);

	return result == -EINTR ? 0 : (int)result;
}

/* -- futexes, and the process ------------------------------------------------------------------ */

#define REFUSED_NS (100 * NS_PER_US) /* a sleep in place of a wait that is refused */

int sys_futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
	struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / NS_PER_S),
				   .tv_nsec = (long)(timeout_ns % NS_PER_S)};

	int error = (int)CALL(SYS_futex, word, FUTEX_WAIT, expected,
			      timeout_ns == UINT64_MAX ? NULL : &timeout);

	if (error && error != -EAGAIN && error != -ETIMEDOUT && error != -EINTR)
		sys_sleep_ns(timeout_ns < REFUSED_NS ? timeout_ns : REFUSED_NS);
	return error;
}

int sys_futex_wake(uint32_t *word, int waiters)
{
	return (int)CALL(SYS_futex, word, FUTEX_WAKE, waiters);
}

int sys_uname(struct utsname *ret_name)
{
	return (int)CALL(SYS_uname, ret_name);
}

unsigned sys_geteuid(void)
{
	return (unsigned)CALL(SYS_geteuid);
}

int sys_getpid(void)
{
	return (int)CALL(SYS_getpid);
}

bool sys_process_exists(int pid)
{
	return CALL(SYS_kill, pid, 0) != -ESRCH;
}

int sys_gettid(void)
{
	return (int)CALL(SYS_gettid);
}

void sys_sleep_ns(uint64_t ns)
{
	struct timespec left = {.tv_sec = (time_t)(ns / NS_PER_S),
				.tv_nsec = (long)(ns % NS_PER_S)};

	while (CALL(SYS_nanosleep, &left, &left) == -EINTR)
		;
}
