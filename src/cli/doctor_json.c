/* Prints the findings of vgpu doctor as one JSON document. */
#include <stdio.h>

#include "doctor.h"
#include "json.h"

int doctor_print_json(const struct doctor *doctor)
{
	struct json_object *all = json_object_new_array();

	for (unsigned i = 0; i < doctor->count; i++) {
		const struct doctor_finding *from = &doctor->finding[i];
		struct json_object *finding = json_object_new_object();

		json_add(finding, "check", json_object_new_string(from->check));
		json_add(finding, "verdict",
			 json_object_new_string(doctor_verdict_name(from->verdict)));
		json_add(finding, "found", json_text(from->found));
		json_add(finding, "advice", from->advice ? json_text(from->advice) : NULL);
		json_object_array_add(all, finding);
	}
	return json_print(all);
}
