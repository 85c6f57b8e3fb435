/*
 * The system calls that the library makes. All go through this file, so that a test can make any of
 * them fail. They use the kernel's numbers, because glibc gave stat, fcntl and other functions new
 * symbols over the years, which old systems lack.
 *
 * Each function returns the kernel's result: 0, a positive number, or a negative errno. errno keeps
 * its value. A call that EINTR ended without an effect is made again. Descriptors are
 * close-on-exec. The functions take no lock, so they are safe in all threads and in signal
 * handlers.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/utsname.h>

int sys_open(const char *path, int flags, unsigned mode); /* O_CLOEXEC is added */
/* Opens a regular file that exists. Refuses a symbolic link (-ELOOP), a directory (-EISDIR) and
 * other kinds of files (-ENXIO). The open of a device or a pipe may have an effect. The kind is
 * that of the file that is opened, also if another process replaces the file during the call.
 * Without /proc, it is checked before the open only. */
int sys_open_regular(const char *path, int flags);
int sys_close(int fd);
/* Moves a descriptor to a number of 40 or more, because programs close and reuse low numbers. If
 * the limit does not allow that, it moves it to any number but 0 to 2. The old number is closed.
 * Returns the number, or -EMFILE if only 0 to 2 are free. */
int sys_raise_fd(int fd);
int sys_fstat(int fd, struct stat *ret_stat);
int sys_stat(const char *path, struct stat *ret_stat); /* follows symbolic links */
int sys_ftruncate(int fd, uint64_t size_bytes);
int sys_fchmod(int fd, unsigned mode);
int sys_fchown(int fd, int user, int group); /* -1: unchanged */
int sys_fsync(int fd);
int sys_rename(const char *from, const char *to);
int sys_unlink(const char *path);
/* Reads a symbolic link into buf, with a NUL at the end. Returns its length, or -ENAMETOOLONG. */
long sys_readlink(const char *path, char *buf, size_t len);
/* 0 if this user may write the file, or create files in the directory; else a negative errno. */
int sys_may_write(const char *path);

/* Reads len bytes, or up to the end of the file. Returns how many bytes it read. */
long sys_read(int fd, void *buf, size_t len);
/* As sys_read, from that offset on. The file's own offset stays. */
long sys_read_at(int fd, void *buf, size_t len, uint64_t offset);
/* Writes len bytes. 0, or a negative errno. */
int sys_write_all(int fd, const void *buf, size_t len);

/* One write(2) of a line to stderr or the like, without a SIGPIPE if the reader is gone. */
void sys_write_line(int fd, const void *buf, size_t len);

/* Calls each(arg, name) for each name in a directory but "." and "..", until a call returns
 * non-zero. Returns that value, 0 after the last name, or a negative errno. */
int sys_list_directory(const char *path, int (*each)(void *arg, const char *name), void *arg);

/* Maps the first len bytes of the file, shared: for reading and writing, or for reading only. */
int sys_map_shared(int fd, size_t len, bool writable, void **ret_addr);
int sys_unmap(void *addr, size_t len);
/* Replaces a mapping by private zeros, at once: a thread that reads it sees the old or the zeros.
 */
int sys_map_zeros_over(void *addr, size_t len);
/* Maps private anonymous memory, zeroed. The library allocates by this call, because malloc may be
 * the application's, and the calling thread may be inside of it. */
int sys_map_private(size_t len, void **ret_addr);

/* Locks on one byte of a file (F_OFD_SETLK of fcntl(2)). The lock belongs to the open file. The
 * kernel removes the lock with the last descriptor of the open file, at the process's death at the
 * latest. */
int sys_lock_byte(int fd, uint64_t offset);  /* 0, or -EAGAIN while another open file has it */
int sys_share_byte(int fd, uint64_t offset); /* a shared lock; the file is open for reading */
int sys_unlock_byte(int fd, uint64_t offset);
/* Whether an open file other than fd's has the byte locked: 1, 0, or a negative errno. */
int sys_byte_is_locked(int fd, uint64_t offset);
/* As sys_byte_is_locked, for any of count bytes. */
int sys_bytes_are_locked(int fd, uint64_t offset, uint64_t count);

/* Marks an open file with this process and a number from 1 to 64, for all processes that have a
 * descriptor of it. The mark is made by F_SETOWN and F_SETSIG (fcntl(2)), which have no effect
 * without O_ASYNC. sys_read_mark reads the mark: the pid in the caller's pid namespace, 0 if there
 * is none. */
int sys_mark_file(int fd, int number);
int sys_read_mark(int fd, int *ret_pid, int *ret_number);

/* The seals of a memfd (F_GET_SEALS of fcntl(2)); -EINVAL if the file cannot have seals. */
int sys_seals(int fd);

/*
 * Unix sockets of whole messages (SOCK_SEQPACKET). Only sys_wait_readable waits.
 *
 * sys_connect returns a descriptor or a negative errno: -EAGAIN while too many connections wait for
 * the peer. sys_send passes the descriptor `passed` with the message, unless it is -1; the caller's
 * stays open. sys_receive returns the length of a message, or 0 if the peer has closed the
 * connection. It returns -EAGAIN if there is no message, -EMSGSIZE if the message is longer than
 * len, and -EPROTO if it has several descriptors. *ret_passed is the descriptor that came with the
 * message, which the caller closes, or -1.
 */
int sys_connect(const char *path);
int sys_send(int fd, const void *buf, size_t len, int passed);
long sys_receive(int fd, void *buf, size_t len, int *ret_passed);
/* Waits until fd can be read, for timeout_ns at most: 1, 0 after that time, or a negative errno. */
int sys_wait_readable(int fd, uint64_t timeout_ns);

/* A futex in shared memory. sys_futex_wait returns 0 after a wake-up, -EAGAIN if *word is not
 * `expected`, -ETIMEDOUT or -EINTR. Where a sandbox refuses futexes, it returns that error after
 * 0.1 ms, or timeout_ns if that is less. So a caller that looks and waits again does not spin. */
int sys_futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns);
int sys_futex_wake(uint32_t *word, int waiters);

int sys_uname(struct utsname *ret_name);
int sys_getpid(void);
unsigned sys_geteuid(void);
bool sys_process_exists(int pid); /* true for a zombie, and if it is not known */
int sys_gettid(void);
void sys_sleep_ns(uint64_t ns);

/*
 * Builds with fault injection (VGPU_FAULTS) call this function before each system call, with the
 * call's number (SYS_…). A negative errno becomes the result of the call; at 0, the call is made.
 * NULL: all calls are made.
 */
extern long (*sys_fault)(long number);
