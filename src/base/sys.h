/*
 * The system calls that the library makes, all of them through here: one seam at which a test can
 * make any call fail, and no dependence on which libc exports what since when (glibc gave stat,
 * fcntl and others new symbols over the years; the kernel's numbers stay).
 *
 * Each returns what the kernel does: 0 or a positive result, or a negative errno. errno itself is
 * left alone. EINTR is retried where the call has no effect before it. Descriptors are opened
 * close-on-exec. Safe from any thread and, because nothing here locks, in a signal handler.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/utsname.h>

int sys_open(const char *path, int flags, unsigned mode); /* O_CLOEXEC is added */
/* Opens a regular file that is there. A link is not followed (-ELOOP), and what is neither is not
 * opened at all (-ENXIO; a directory: -EISDIR), whatever is put in its place meanwhile: to open a
 * device, or a pipe, may have effects of its own. Without /proc that is only looked at before. */
int sys_open_regular(const char *path, int flags);
int sys_close(int fd);
/* The same open file under a number of 40 or more, as far as the limit allows, and never 0 to 2:
 * out of the way of programs that close and reuse the low ones. fd is closed. The new number, or
 * -EMFILE where only 0 to 2 are to be had. */
int sys_raise_fd(int fd);
int sys_fstat(int fd, struct stat *ret_stat);
int sys_stat(const char *path, struct stat *ret_stat); /* follows symbolic links */
int sys_ftruncate(int fd, uint64_t size_bytes);
int sys_fchmod(int fd, unsigned mode);
int sys_fchown(int fd, int user, int group); /* -1: stays */
int sys_rename(const char *from, const char *to);
int sys_unlink(const char *path);
/* Where a symbolic link points, NUL-terminated; its length, or -ENAMETOOLONG. */
long sys_readlink(const char *path, char *buf, size_t len);
int sys_mkdir(const char *path, unsigned mode);
/* 0 where this user may write the file, or make files in the directory; else a negative errno. */
int sys_may_write(const char *path);

/* Reads until len bytes or the end of the file; returns how many there were. */
long sys_read(int fd, void *buf, size_t len);
/* The same from an offset on; the file's own stays. */
long sys_read_at(int fd, void *buf, size_t len, uint64_t offset);
/* Writes it all, or returns a negative errno. */
int sys_write_all(int fd, const void *buf, size_t len);

/* One write, without a SIGPIPE where nobody reads any more: for lines on stderr. */
void sys_write_line(int fd, const void *buf, size_t len);

/* Names in a directory, without "." and "..". Calls each(arg, name) until it returns non-zero or
 * the names end; returns that value, 0 at the end, or a negative errno. */
int sys_list_directory(const char *path, int (*each)(void *arg, const char *name), void *arg);

/* Shared read-write (or read-only) mapping of the file's first len bytes. */
int sys_map_shared(int fd, size_t len, bool writable, void **ret_addr);
int sys_unmap(void *addr, size_t len);
/* Puts private zeros in the place of a mapping: whoever uses it meanwhile sees one or the other. */
int sys_map_zeros_over(void *addr, size_t len);
/* Private anonymous memory, zeroed: what the library allocates with, because malloc may be the
 * application's, and held by the thread that called us. */
int sys_map_private(size_t len, void **ret_addr);

/* One byte of a file as an open-file-description lock (fcntl(2), F_OFD_SETLK): it belongs to the
 * open file and goes when its last descriptor does, at death at the latest. */
int sys_lock_byte(int fd, uint64_t offset);  /* 0, or -EAGAIN while another open file has it */
int sys_share_byte(int fd, uint64_t offset); /* the same shared; the file is open for reading */
int sys_unlock_byte(int fd, uint64_t offset);
/* Whether another open file than fd's own holds the byte: 1, 0, or a negative errno. */
int sys_byte_is_locked(int fd, uint64_t offset);
/* The same for any of count bytes. */
int sys_bytes_are_locked(int fd, uint64_t offset, uint64_t count);

/* Marks an open file, wherever its descriptors go, with this process and a number from 1 to 64: by
 * F_SETOWN and F_SETSIG (fcntl(2)), which mean nothing without O_ASYNC. And reads such a mark; pid
 * is as the caller's pid namespace has it, 0 where there is none. */
int sys_mark_file(int fd, int number);
int sys_read_mark(int fd, int *ret_pid, int *ret_number);

/* The seals of a memfd (F_GET_SEALS of fcntl(2)), -EINVAL where the file has none. */
int sys_seals(int fd);

/*
 * Sockets of one machine, of whole messages (SOCK_SEQPACKET). None of these calls waits but the
 * last. sys_connect: a descriptor, or a negative errno, -EAGAIN while the peer has too many to
 * accept. sys_send takes a descriptor along where passed is not -1; the caller's stays open.
 * sys_receive: the length of a message, 0 where the peer has closed, -EAGAIN where there is none
 * yet, -EMSGSIZE for one that is longer than len, -EPROTO for one with several descriptors;
 * ret_passed is what came along, for the caller to close, or -1.
 */
int sys_connect(const char *path);
int sys_send(int fd, const void *buf, size_t len, int passed);
long sys_receive(int fd, void *buf, size_t len, int *ret_passed);
/* Waits until something can be read, for that long at most: 1, 0, or a negative errno. */
int sys_wait_readable(int fd, uint64_t timeout_ns);

/* Futex of a word in shared memory. wait returns 0 when woken, -EAGAIN when *word is not expected,
 * -ETIMEDOUT, or -EINTR. */
int sys_futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns);
int sys_futex_wake(uint32_t *word, int waiters);

int sys_uname(struct utsname *ret_name);
int sys_getpid(void);
unsigned sys_geteuid(void);
bool sys_process_exists(int pid); /* a zombie does; so may one of which we may not know */
int sys_gettid(void);
void sys_sleep_ns(uint64_t ns);

/*
 * Test builds (VGPU_FAULTS) ask this before each call, with the system call's number (SYS_…): a
 * negative errno makes the call fail with it, 0 lets it through. NULL, as in every release, is
 * free.
 */
extern long (*sys_fault)(long number);
