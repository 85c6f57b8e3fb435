/* Directories on the host, and files with the directories that they need. */
#pragma once

#include <sys/types.h>

#include "fault.h"
#include "policy.h"

/* Makes the directory with that mode, whatever the umask; one that is there is left as it is. */
int directory_make(const char *path, mode_t mode, struct fault *fault);
/* The same with the directories above it, which get the mode 0755. path is absolute. */
int directory_make_all(const char *path, mode_t mode, struct fault *fault);

/* Makes or replaces the file (file_write), and makes its directory if need be. path has a "/". */
int directory_write_file(const char *path, const char *text, struct fault *fault);

/* Removes the files in the directory, but not a policy's, keep; NULL: all of them. */
void directory_remove_files(const char *path, const struct policy *keep);
