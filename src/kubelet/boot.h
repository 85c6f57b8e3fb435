/* The kernel's ID of the machine's start, by which two machines, and two starts of one, differ. */
#pragma once

#define BOOT_LEN 37 /* of an ID, with its NUL */

/* "" where it cannot be read. */
void boot_read(char ret_id[BOOT_LEN]);
