/*
 * dlopen with RTLD_DEEPBIND: the library so opened prefers its own dependencies' symbols to ours,
 * dlsym included, and would walk past every door. It is opened as asked for; then the calls that it
 * and the libraries loaded along with it make to functions that we hook are pointed at our hooks.
 */
#pragma once

/* dlopen(path, mode) as it would answer to code at caller. */
void *deepbind_open(const char *path, int mode, const void *caller);
