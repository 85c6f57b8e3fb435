/* The kernel's boot ID, which differs between two machines, and between two starts of one
 * machine. */
#pragma once

#define BOOT_LEN 37 /* length of an ID with its NUL */

/* Reads this machine's boot ID; "" where it cannot be read. */
void boot_read(char ret_id[BOOT_LEN]);
