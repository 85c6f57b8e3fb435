/* Prints where an address lies, as the object and the offset in it, which two runs have in
 * common. */
#pragma once

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static inline const char *object_of(const void *address)
{
	Dl_info info;
	const char *slash;

	if (!address || !dladdr(address, &info) || !info.dli_fname)
		return "nowhere";
	slash = strrchr(info.dli_fname, '/');
	return slash ? slash + 1 : info.dli_fname;
}

static inline void print_place(const char *label, const char *name, const void *address)
{
	Dl_info info;

	if (address && dladdr(address, &info))
		printf("%s %s: %s+%#lx\n", label, name, object_of(address),
		       (unsigned long)((const char *)address - (const char *)info.dli_fbase));
	else
		printf("%s %s: %s\n", label, name, address ? "?" : "NULL");
}
