/*
 * Removes directories that tenants have filled: with any number of files, nested to any depth,
 * and with names that may change meanwhile. Links are not followed.
 */
#pragma once

#include <stdbool.h>

/* Moves an entry of the directory dir in one step to where gone_remove finds it. Returns
 * whether dir does not have the entry any more. */
bool gone_move(int dir, const char *name);

/* Removes entries that gone_move has moved from dir, also before this program was started. It
 * lowers *budget by the files and directories that it looks at, and stops at 0. Returns whether
 * nothing is left. */
bool gone_remove(int dir, unsigned *budget);
