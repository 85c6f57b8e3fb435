/*
 * Removes directories that tenants have filled: with any number of files, nested to any depth, and
 * with names that may change meanwhile. Links are not followed.
 */
#pragma once

#include <stdbool.h>

/* Moves an entry of the directory to where gone_remove finds it, in one step. Whether the directory
 * does not have the entry any more. */
bool gone_move(int dir, const char *name);

/* Removes what gone_move has moved from the directory, also before this program was started. It
 * stops after *budget files and directories, and lowers *budget by those that it looked at. Whether
 * nothing is left. */
bool gone_remove(int dir, unsigned *budget);
