/*
 * Whether the slices that this user may see are assured more of a GPU's time than there is. In a
 * container there are none to be seen.
 */
#include <stddef.h>

#include "doctor.h"
#include "ps.h"

static void say(struct doctor *doctor, const struct overview *overview)
{
	unsigned before = doctor->count;
	char word[256];

	for (unsigned i = 0; i < overview->usage.gpu_count; i++) {
		ps_assured_word(overview, &overview->usage.gpu[i], word, sizeof(word));
		if (!*word)
			continue;
		doctor_found(doctor, DOCTOR_WARN, "%s", word);
		doctor_advise(doctor, "Lower some with vgpu set --cores, or move slices to other "
				      "GPUs; vgpu ps lists them");
	}
	if (doctor->count == before)
		doctor_found(
			doctor, DOCTOR_OK,
			"the slices of each GPU are assured 100 %% of its time in all, or less");
}

static void check_assured(struct doctor *doctor)
{
	static char *all[] = {NULL};
	struct overview_looker looker = {.only_reads = true};
	struct overview overview = {.count = 0};
	struct fault fault = {""};
	int error = overview_open(&looker, all, &fault);

	if (!error)
		error = overview_take(&looker, &overview, &fault);
	if (error) {
		doctor_found(doctor, DOCTOR_WARN, "%s", fault.text);
		doctor_advise(doctor, "Free some memory, and try again");
	} else if (overview.usage.gpu_count > 0) {
		say(doctor, &overview);
	}
	overview_free(&overview);
	overview_close(&looker);
}

const struct doctor_check doctor_assured[] = {{"assured", check_assured}, {NULL, NULL}};
