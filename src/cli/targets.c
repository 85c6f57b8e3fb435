/* A failure for one slice does not stop the others. It is a line on stderr, also with --json. */
#include "targets.h"

#include <stdio.h>
#include <string.h>

static int finish(const struct target *target, struct target_document *document)
{
	if (target->left_out)
		return 0;
	if (document)
		target_document_add(document, target);
	if (target->fault.text[0])
		return cli_fail(CLI_FAILED, "%s", target->fault.text);
	if (!document)
		cli_say("%s", target->said);
	return 0;
}

static int do_one(const struct slices_one *slice, const struct target_action *action,
		  struct target_document *document)
{
	struct target target = {.name = slice->name, .slice = slice};

	action->run(action, &target);
	return finish(&target, document);
}

static int do_named(const char *name, const struct target_action *action,
		    struct target_document *document)
{
	struct target target = {.name = name};
	struct slices slices;
	int status;

	if (slices_list(&slices, &target.fault) == 0 &&
	    slices_find(&slices, name, &target.slice, &target.fault) == 0)
		status = do_one(target.slice, action, document);
	else
		status = finish(&target, document);
	slices_free(&slices);
	return status;
}

static int do_all(const struct target_action *action, struct target_document *document)
{
	struct fault fault = {""};
	struct slices slices;
	int worst = 0;

	if (slices_list(&slices, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	if (slices.count == 0 && !document)
		puts("no slice is here");
	for (unsigned i = 0; i < slices.count; i++) {
		int status = do_one(&slices.one[i], action, document);

		worst = status ? status : worst;
	}
	slices_free(&slices);
	return worst;
}

int targets_each(const struct cli_line *line, bool all, bool json,
		 const struct target_action *action)
{
	struct target_document *document = NULL;
	int worst = 0, status;

	if (all == (line->count > 0))
		return cli_fail(CLI_USAGE, "%s%s: vgpu %s NAME..., or vgpu %s --all",
				all ? "names and --all at once" : "no slice to ",
				all                                      ? ""
				: strcmp(line->command->name, "rm") == 0 ? "remove"
									 : line->command->name,
				line->command->name, line->command->name);
	status = json ? target_document_open(&document) : 0;
	if (status)
		return status;
	for (int i = 0; i < line->count; i++) {
		status = do_named(line->argument[i], action, document);
		worst = status ? status : worst;
	}
	if (all)
		worst = do_all(action, document);
	status = document ? target_document_print(document) : cli_written(0);
	return status ? status : worst;
}
