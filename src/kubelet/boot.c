#include "boot.h"

#include <fcntl.h>
#include <unistd.h>

void boot_read(char ret_id[BOOT_LEN])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? 0 : read(fd, ret_id, BOOT_LEN - 1);

	ret_id[len > 0 ? len : 0] = '\0';
	if (fd >= 0)
		close(fd);
}
