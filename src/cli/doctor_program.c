/*
 * A command: whether it would be limited (program.h), and by which doors it comes to CUDA. Nothing
 * is run, and so what it loads once it runs is not known; that is limited as well.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "doctor.h"
#include "elf_file.h"
#include "library.h"
#include "program.h"

/* The command's, for the checks one after the other. */
static struct program program;
static bool is_known;

static void check_command(struct doctor *doctor)
{
	is_known = program_find(doctor->command, &program) == 0;
	if (!is_known) {
		doctor_found(doctor, DOCTOR_FAIL, "%s", program.what.text);
		doctor_advise(doctor, "%s", program.cure.text);
	} else if (program.is_script) {
		doctor_found(doctor, DOCTOR_OK, "%s is a script, which %s runs", program.command,
			     program.path);
	} else if (strcmp(program.command, program.path) != 0) {
		doctor_found(doctor, DOCTOR_OK, "%s starts %s", program.command, program.path);
	} else {
		doctor_found(doctor, DOCTOR_OK, "%s", program.path);
	}
}

static bool is_held(void)
{
	return is_known && program.standing != PROGRAM_UNKNOWN &&
	       program.standing != PROGRAM_NOT_HELD;
}

static void check_held(struct doctor *doctor)
{
	if (!is_known)
		return;
	switch (program.standing) {
	case PROGRAM_HELD:
		doctor_found(doctor, DOCTOR_OK, "%s would be limited: dynamic, for glibc",
			     program.path);
		return;
	case PROGRAM_HELD_BY_LIST:
		doctor_found(doctor, DOCTOR_NOTE,
			     "%s would be limited by this machine's own limits, by " LIBRARY_LIST
			     ", and not to a slice of vgpu run: %s",
			     program.path, program.what.text);
		break;
	case PROGRAM_HELD_HERE:
		doctor_found(doctor, DOCTOR_WARN,
			     "%s would not be limited for other users than this: %s", program.path,
			     program.what.text);
		break;
	case PROGRAM_UNKNOWN:
		doctor_found(doctor, DOCTOR_WARN, "whether %s would be limited is not known: %s",
			     program.path, program.what.text);
		break;
	case PROGRAM_NOT_HELD:
		doctor_found(doctor, DOCTOR_FAIL, "%s would not be limited: %s", program.path,
			     program.what.text);
		break;
	}
	doctor_advise(doctor, "%s", program.cure.text);
}

/* -- how it comes to CUDA ---------------------------------------------------------------------- */

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* "a, b and c", of what there is. */
struct list {
	char text[400];
	unsigned count;
};

__attribute__((format(printf, 2, 3))) static void add(struct list *list, const char *format, ...)
{
	size_t at = strlen(list->text);
	va_list args;

	if (list->count++ && at < sizeof(list->text) - 2)
		at += (size_t)snprintf(list->text + at, sizeof(list->text) - at, ", ");
	va_start(args, format);
	vsnprintf(list->text + at, sizeof(list->text) - at, format, args);
	va_end(args);
}

static void list_libraries(struct list *list)
{
	static const char *const known[] = {"libcuda.so", "libcudart.so", "libnvidia-ml.so",
					    "libnccl.so", "libcublas.so", "libtorch"};
	const char *name;

	for (unsigned n = 0; (name = elf_needed(&program.elf, n)); n++)
		for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
			if (begins(name, known[i])) {
				add(list, "is linked with %.60s", name);
				break;
			}
}

static void list_loading(struct list *list)
{
	bool linked = elf_needs(&program.elf, "libcuda.so.1");

	if (elf_contains(&program.elf.file, "cudaGetExportTable") ||
	    elf_contains(&program.elf.file, "cudaErrorInsufficientDriver"))
		add(list, "has CUDA's runtime in it");
	if (!linked && elf_contains(&program.elf.file, "libcuda.so"))
		add(list, "names libcuda.so, to load it itself");
	if (begins(program_base_name(program.path), "python"))
		add(list, "loads what its modules need");
	else if (elf_uses(&program.elf, "dlopen"))
		add(list, "may load libraries (dlopen)");
}

static void say_doors(struct doctor *doctor)
{
	struct list list = {"", 0};

	list_libraries(&list);
	list_loading(&list);
	doctor_check_linked(doctor, &program.elf);
	if (elf_uses(&program.elf, "dlmopen")) {
		doctor_found(doctor, DOCTOR_WARN,
			     "it loads libraries into namespaces of their own (dlmopen)");
		doctor_advise(doctor, "Know that one which is opened so and linked with the driver "
				      "is not limited");
	}
	if (list.count == 0)
		doctor_found(doctor, DOCTOR_OK,
			     "none in the program itself; its libraries, and what it runs, are "
			     "limited");
	else
		doctor_found(doctor, DOCTOR_OK,
			     "it %s; what it loads while it runs is limited, too", list.text);
}

static void check_doors(struct doctor *doctor)
{
	if (is_held())
		say_doors(doctor);
	program_close(&program);
}

const struct doctor_check doctor_program[] = {
	{"command", check_command},
	{"held", check_held},
	{"doors", check_doors},
	{NULL, NULL},
};
