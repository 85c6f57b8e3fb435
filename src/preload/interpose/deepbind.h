/*
 * dlopen with RTLD_DEEPBIND. A library that is opened so prefers the symbols of its own
 * dependencies to ours, dlsym included, and would call the driver without a hook. deepbind_open
 * keeps the flag. Then it redirects the calls of hooked functions, from that library and from those
 * loaded with it, to the hooks.
 */
#pragma once

/* dlopen(path, mode) as it would answer to code at caller. */
void *deepbind_open(const char *path, int mode, const void *caller);
