/* In the place of json.c and those that use it, where json-c was missing. */
#include "cdi.h"
#include "cli.h"
#include "doctor.h"
#include "inspect.h"
#include "ps.h"
#include "targets.h"
#include "trace.h"

static int missing(void)
{
	return cli_fail(CLI_FAILED, "this vgpu was built without --json: install json-c "
				    "(libjson-c-dev) and pkg-config, and build it again");
}

int cdi_print_json(const struct cdi_slices *slices)
{
	(void)slices;
	return missing();
}

int inspect_print_json(const struct inspection *found)
{
	(void)found;
	return missing();
}

int ps_print_json(const struct overview *overview, bool all)
{
	(void)overview;
	(void)all;
	return missing();
}

int doctor_print_json(const struct doctor *doctor)
{
	(void)doctor;
	return missing();
}

int ps_print_json_line(const struct overview *overview, bool all)
{
	(void)overview;
	(void)all;
	return missing();
}

int trace_print_json(const struct trace *trace)
{
	(void)trace;
	return missing();
}

int trace_print_json_lines(const struct trace *trace)
{
	(void)trace;
	return missing();
}

int target_document_open(struct target_document **ret_document)
{
	(void)ret_document;
	return missing();
}

void target_document_add(struct target_document *document, const struct target *target)
{
	(void)document;
	(void)target;
}

int target_document_print(struct target_document *document)
{
	(void)document;
	return missing();
}
