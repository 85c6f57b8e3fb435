/*
 * dlopen with RTLD_DEEPBIND. A library that is opened so prefers the symbols of its own
 * dependencies to ours, dlsym included, and would call the driver without a hook. It is opened as
 * asked for. Then the calls to hooked functions, from it and from the libraries loaded along with
 * it, are redirected to the hooks.
 */
#pragma once

/* dlopen(path, mode) as it would answer to code at caller. */
void *deepbind_open(const char *path, int mode, const void *caller);
