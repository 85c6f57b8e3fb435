#include "boot.h"

#include "file.h"

void boot_read(char ret_id[BOOT_LEN])
{
	file_read("/proc/sys/kernel/random/boot_id", ret_id, BOOT_LEN);
}
