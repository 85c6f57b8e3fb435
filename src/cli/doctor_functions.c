/*
 * Functions of a driver that is newer than this vgpu. libcuda exports them, or a program is linked
 * with them. They may make the device hold more memory, and api/symbols does not have them. No hook
 * charges their allocations.
 *
 * The names are read from the library's file, as the loader would find them. Functions that
 * cuGetProcAddress alone hands out are in no list: of those the library says a line when a program
 * gets one. The library says no line of a function that a program is linked with, as the loader
 * finds it without asking the library.
 */
#include <stdio.h>
#include <string.h>

#include "doctor.h"
#include "elf_file.h"
#include "names.h"

#define LISTED_MOST 8 /* names in the line */

struct unknown {
	unsigned count;
	size_t len;
	char names[512];
};

static void look_at(void *arg, const char *name)
{
	struct unknown *unknown = arg;
	size_t room = sizeof(unknown->names) - unknown->len;
	int len;

	if (!names_is_new_memory(name) || ++unknown->count > LISTED_MOST)
		return;
	len = snprintf(unknown->names + unknown->len, room, "%s%.60s", unknown->len ? ", " : "",
		       name);
	unknown->len += (size_t)len < room ? (size_t)len : room - 1;
}

static void warn(struct doctor *doctor, const char *has, const struct unknown *unknown)
{
	doctor_found(doctor, DOCTOR_WARN,
		     "%s %u function%s that may allocate and that this library does not know: %s%s",
		     has, unknown->count, unknown->count == 1 ? "" : "s", unknown->names,
		     unknown->count > LISTED_MOST ? ", ..." : "");
	doctor_advise(doctor, "Update vgpu: what a program allocates by them is charged only when "
			      "NVML shows it, so that the slice can exceed its limit for that "
			      "moment");
}

static bool read_functions(struct doctor *doctor, const char *path, struct unknown *ret_unknown)
{
	struct elf_file file = {NULL, 0};
	struct fault fault;
	struct elf elf;
	bool read;

	if (elf_map(path, &file, &fault) != 0) {
		doctor_found(doctor, DOCTOR_WARN, "the functions of libcuda.so.1 are not known: %s",
			     fault.text);
		doctor_advise(doctor, "Let this user read it, and run vgpu doctor again");
		return false;
	}
	read = elf_read(&file, &elf) == 0 && elf.ours;
	if (read) {
		elf_each_defined(&elf, look_at, ret_unknown);
	} else {
		doctor_found(doctor, DOCTOR_WARN,
			     "the functions of %s are not known: it is no library of this machine",
			     path);
		doctor_advise(doctor, "Install the driver's libraries again");
	}
	elf_unmap(&file);
	return read;
}

void doctor_check_functions(struct doctor *doctor)
{
	struct unknown unknown = {0};
	char path[PATH_MAX];
	const char *why;

	if (!doctor_find_library("libcuda.so.1", path, &why))
		return; /* the check of the driver says that */
	if (!read_functions(doctor, path, &unknown))
		return;
	if (unknown.count)
		warn(doctor, "driver exports", &unknown);
	else
		doctor_found(doctor, DOCTOR_OK,
			     "vgpu knows each function of libcuda.so.1 that may allocate");
}

/* A function of libcuda that a program is linked with. */
struct linked {
	const struct elf *driver;
	struct unknown *unknown;
};

/* Other libraries have names that begin with cu, too, such as cuFileDriverOpen. */
static void look_at_linked(void *arg, const char *name)
{
	const struct linked *linked = arg;

	if (elf_defines(linked->driver, name))
		look_at(linked->unknown, name);
}

static void read_linked(const struct elf *elf, const char *driver_path, struct unknown *ret_unknown)
{
	struct elf_file file = {NULL, 0};
	struct fault fault;
	struct elf driver;
	struct linked linked = {&driver, ret_unknown};

	if (elf_map(driver_path, &file, &fault) != 0)
		return; /* doctor_check_functions() says so */
	if (elf_read(&file, &driver) == 0 && driver.ours)
		elf_each_used(elf, look_at_linked, &linked);
	elf_unmap(&file);
}

void doctor_check_linked(struct doctor *doctor, const struct elf *elf)
{
	struct unknown unknown = {0};
	char path[PATH_MAX];
	const char *why;

	if (!elf_needs(elf, "libcuda.so.1") || !doctor_find_library("libcuda.so.1", path, &why))
		return;
	read_linked(elf, path, &unknown);
	if (unknown.count)
		warn(doctor, "it is linked with", &unknown);
}
