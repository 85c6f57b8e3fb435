/*
 * The library: the one that vgpu run would preload, and what is preloaded here. vgpu's library is
 * recognised by its note (preload/interpose/note.S), not by its name, which HAMi-core's has as
 * well. In this process it is recognised among the objects that the loader has in memory, whatever
 * any list says.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include "doctor.h"
#include "elf_file.h"
#include "env.h"
#include "library.h"

#define HAMI_LIBRARY    SLICE_REGION_HAMI_DIR "/" LIBRARY_NAME
#define PATH_LEAST_WORD "libvgpu"

/* -- in this process --------------------------------------------------------------------------- */

struct loaded {
	char *path, *version;
	size_t len;
};

static int look_at_object(struct dl_phdr_info *object, size_t size, void *arg)
{
	struct loaded *loaded = arg;

	(void)size;
	for (unsigned i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];

		if (segment->p_type != PT_NOTE ||
		    !elf_vgpu_note((const void *)(object->dlpi_addr + segment->p_vaddr),
				   segment->p_memsz, loaded->version, loaded->len))
			continue;
		snprintf(loaded->path, PATH_MAX, "%s", object->dlpi_name);
		return 1;
	}
	return 0;
}

bool doctor_find_loaded(char path[PATH_MAX], char *version, size_t len)
{
	struct loaded loaded = {path, version, len};

	return dl_iterate_phdr(look_at_object, &loaded) == 1;
}

/* -- a library's file -------------------------------------------------------------------------- */

/* Whether it stands in front of the driver, or of the loader, as we do. */
static bool hooks_cuda(const struct elf *elf)
{
	static const char *const names[] = {"cuInit", "cuGetProcAddress", "cuMemAlloc_v2", "dlsym",
					    "nvmlInit_v2"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (elf_defines(elf, names[i]))
			return true;
	return false;
}

/* x of this process's glibc 2.x. */
static unsigned glibc_minor(void)
{
#ifdef __GLIBC__
	const char *dot = strchr(gnu_get_libc_version(), '.');

	return dot ? (unsigned)strtoul(dot + 1, NULL, 10) : 0;
#else
	return 0;
#endif
}

static bool others_may_replace(const char *path, const struct stat *st)
{
	char copy[PATH_MAX];
	struct stat dir;

	if (st->st_mode & S_IWOTH)
		return true;
	snprintf(copy, sizeof(copy), "%s", path);
	return stat(dirname(copy), &dir) == 0 && (dir.st_mode & S_IWOTH) &&
	       !(dir.st_mode & S_ISVTX);
}

/* -- the library that there is ----------------------------------------------------------------- */

static bool say_rights(struct doctor *doctor, const char *path, const struct stat *st)
{
	if (others_may_replace(path, st)) {
		doctor_found(doctor, DOCTOR_WARN, "every user may change %s", path);
		doctor_advise(doctor, "Take that right away (chmod o-w, of its directory as well): "
				      "what is in it runs in every program of a slice");
	} else if (geteuid() == 0 && st->st_uid != 0) {
		doctor_found(doctor, DOCTOR_WARN, "%s is user %u's, and is preloaded for root",
			     path, (unsigned)st->st_uid);
		doctor_advise(doctor,
			      "Make it root's (chown root %s): its owner can run anything "
			      "in root's slices",
			      path);
	} else if (!(st->st_mode & S_IROTH)) {
		doctor_found(doctor, DOCTOR_WARN, "not every user may read %s", path);
		doctor_advise(doctor,
			      "Let them (chmod a+r %s): a program that may not is not limited",
			      path);
	} else {
		return false;
	}
	return true;
}

static void say_library(struct doctor *doctor, const char *path, const struct library *library)
{
	unsigned needs = elf_glibc_minor(&library->elf), has = glibc_minor();
	struct fault why = {""};

	if (!library->version[0]) {
		doctor_found(doctor, DOCTOR_FAIL, "%s is not vgpu's", path);
		doctor_advise(doctor, "Put vgpu's there, or set VGPU_LIBRARY to it: HAMi-core's "
				      "library has the same name");
	} else if (has && needs > has) {
		doctor_found(doctor, DOCTOR_FAIL, "%s needs glibc 2.%u, and this is 2.%u", path,
			     needs, has);
		doctor_advise(doctor, "Take one that was built for older ones: the releases need "
				      "2.17");
	} else if (strcmp(library->version, VGPU_VERSION) != 0) {
		doctor_found(doctor, DOCTOR_WARN, "%s is version %s, and this is vgpu %s", path,
			     library->version, VGPU_VERSION);
		doctor_advise(doctor, "Install both of one version");
	} else if (library_check(path, &why)) {
		doctor_found(doctor, DOCTOR_FAIL, "%s", why.text);
		doctor_advise(doctor, "Until it is loaded, vgpu run starts nothing");
	} else if (!say_rights(doctor, path, &library->st)) {
		doctor_found(doctor, DOCTOR_OK, "%s, version %s, needs glibc 2.%u", path,
			     library->version, needs);
	}
}

/* Checks the library that HAMi's device plugin mounts into its containers. */
static void say_hami(struct doctor *doctor)
{
	struct library library;
	struct fault why = {""};

	if (access(HAMI_LIBRARY, F_OK) != 0)
		return;
	if (library_look(HAMI_LIBRARY, &library, &why) && !library.version[0]) {
		doctor_found(doctor, DOCTOR_NOTE, "%s is not vgpu's, but HAMi-core's, or another's",
			     HAMI_LIBRARY);
		doctor_advise(doctor, "Put vgpu's in its place, if HAMi's containers are to be "
				      "limited by vgpu");
	}
	elf_unmap(&library.elf.file);
}

static void check_library(struct doctor *doctor)
{
	char path[PATH_MAX], version[LIBRARY_VERSION_LEN];
	struct fault fault = {""}, why = {""};
	struct library library;

	if (library_find(path, &fault) && !doctor_find_loaded(path, version, sizeof(version))) {
		doctor_found(doctor, DOCTOR_FAIL, "%s", fault.text);
		doctor_advise(doctor, "Until it is found, vgpu run starts nothing");
		return;
	}
	if (library_look(path, &library, &why)) {
		say_library(doctor, path, &library);
	} else {
		doctor_found(doctor, DOCTOR_FAIL, "%s", why.text);
		doctor_advise(doctor, "Put vgpu's libvgpu.so there, or set VGPU_LIBRARY to it");
	}
	elf_unmap(&library.elf.file);
	say_hami(doctor);
}

/* -- lists of libraries ------------------------------------------------------------------------ */

struct preloaded {
	bool ours;      /* a libvgpu.so of vgpu's is among them */
	bool complains; /* something was said */
};

static void say_entry(struct doctor *doctor, const char *list, const char *entry,
		      struct preloaded *preloaded)
{
	struct library library;
	struct fault why = {""};
	bool is_good = library_look(entry, &library, &why);

	if (!is_good) {
		bool ours = strstr(entry, PATH_LEAST_WORD) != NULL;

		doctor_found(doctor, ours ? DOCTOR_FAIL : DOCTOR_WARN,
			     "the loader cannot use an entry of %s: %s", list, why.text);
		doctor_advise(doctor, "Correct it, or take it out: every program prints a line for "
				      "it, and goes on without; blanks and colons end an entry");
	} else if (library.version[0]) {
		preloaded->ours = true;
		if (strcmp(list, LIBRARY_LIST) == 0 && !(library.st.st_mode & S_IROTH)) {
			doctor_found(doctor, DOCTOR_FAIL, "not every user may read %s, of %s",
				     entry, list);
			doctor_advise(doctor,
				      "Let them (chmod a+r %s): other users' programs are "
				      "not limited",
				      entry);
			is_good = false;
		}
	} else if (hooks_cuda(&library.elf)) {
		doctor_found(doctor, DOCTOR_NOTE,
			     "%s preloads %s, which hooks CUDA or the loader, too", list, entry);
		doctor_advise(doctor,
			      "Leave it out, if quotas are not kept, or programs fail, with "
			      "both");
		is_good = false;
	}
	preloaded->complains |= !is_good;
	elf_unmap(&library.elf.file);
}

/* Entries that the loader searches for, or fills in, are not looked at. */
static void say_entries(struct doctor *doctor, const char *list, char *text,
			struct preloaded *preloaded)
{
	const char *entry;

	while ((entry = library_next_entry(&text)))
		if (strchr(entry, '/') && !strchr(entry, '$'))
			say_entry(doctor, list, entry, preloaded);
}

static void not_loaded(struct doctor *doctor, const struct preloaded *preloaded)
{
	if (doctor_is_limited(doctor)) {
		doctor_found(doctor, DOCTOR_FAIL,
			     "there are limits here, and they do not apply to this process: no "
			     "libvgpu.so of vgpu's is in it");
		doctor_advise(doctor, "Name the library in " LIBRARY_LIST
				      ", mounted read-only into a container, or start programs "
				      "with vgpu run");
	} else if (doctor->slice.configured) {
		doctor_found(doctor, DOCTOR_WARN,
			     "there is a region (%s), and no libvgpu.so of vgpu's in this process",
			     doctor->slice.region_path);
		doctor_advise(doctor, "Name the library in " LIBRARY_LIST
				      ", if this is to be a slice; else remove that file");
	} else if (!preloaded->complains) {
		doctor_found(doctor, DOCTOR_OK,
			     "nothing of vgpu's is preloaded here; vgpu run does that for its "
			     "programs");
	}
}

static void check_preload(struct doctor *doctor)
{
	const char *variable = env_get("LD_PRELOAD");
	char *list = library_read_list(), *own = variable ? strdup(variable) : NULL;
	struct preloaded for_all = {false, false}, here = {false, false};
	char path[PATH_MAX], version[LIBRARY_VERSION_LEN];

	if (list)
		say_entries(doctor, LIBRARY_LIST, list, &for_all);
	if (own)
		say_entries(doctor, "LD_PRELOAD", own, &here);
	here.complains |= for_all.complains;
	if (!doctor_find_loaded(path, version, sizeof(version))) {
		not_loaded(doctor, &here);
	} else if (for_all.ours) {
		doctor_found(doctor, DOCTOR_OK, "%s is in this process, by " LIBRARY_LIST, path);
	} else {
		doctor_found(doctor, DOCTOR_NOTE, "%s is in this process, by LD_PRELOAD", path);
		doctor_advise(doctor, "Know that set-user-id programs, env -i and sudo drop that "
				      "variable: in containers, name the library in " LIBRARY_LIST);
	}
	free(own);
	free(list);
}

const struct doctor_check doctor_library[] = {
	{"library", check_library},
	{"preload", check_preload},
	{NULL, NULL},
};
