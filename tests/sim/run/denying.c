/* denying CALL COMMAND [ARGUMENT...]: runs the command where a seccomp filter denies that call. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ANY (-1)

static const struct {
	const char *name;
	unsigned number;
	int second; /* argument */
} calls[] = {
	{"setlk", SYS_fcntl, F_OFD_SETLK},
	{"getlk", SYS_fcntl, F_OFD_GETLK},
	{"futex", SYS_futex, ANY},
};

static int deny(unsigned number, int second)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | (second == ANY ? BPF_JGE : BPF_JEQ) | BPF_K,
			 second == ANY ? 0 : (unsigned)second, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 2 && i < sizeof(calls) / sizeof(calls[0]); i++)
		if (strcmp(calls[i].name, argv[1]) == 0 &&
		    deny(calls[i].number, calls[i].second) == 0) {
			execvp(argv[2], argv + 2);
			break;
		}
	perror("denying");
	return 99;
}
