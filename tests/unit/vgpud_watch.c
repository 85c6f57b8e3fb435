/* The lines about looks at the machine that fail. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "changes.h"
#include "metrics.h"
#include "unit.h"
#include "watch.h"

/* In the place of the functions of other files. */
static const char *failure; /* of overview_take; NULL: it succeeds */
static bool no_track;       /* track_follow fails */
static char said[512];      /* the lines since the last look at it */

int __wrap_overview_take(struct overview_looker *looker, struct overview *ret_overview,
			 struct fault *fault);
__attribute__((format(printf, 2, 3))) void __wrap_say(int level, const char *format, ...);

int __wrap_overview_take(struct overview_looker *looker, struct overview *ret_overview,
			 struct fault *fault)
{
	(void)looker;
	if (failure)
		return fault_set(fault, -ENOMEM, "%s", failure);
	*ret_overview = (struct overview){.count = 0};
	return 0;
}

void __wrap_say(int level, const char *format, ...)
{
	size_t len = strlen(said);
	va_list args;

	(void)level;
	va_start(args, format);
	vsnprintf(said + len, sizeof(said) - len, format, args);
	va_end(args);
	strcat(said, "\n");
}

int track_follow(struct track *track, const struct overview *earlier,
		 const struct overview *overview)
{
	(void)track, (void)earlier, (void)overview;
	return no_track ? -ENOMEM : 0;
}

void track_free(struct track *track)
{
	(void)track;
}

void changes_tell(struct events *events, const struct overview *earlier,
		  const struct overview *overview, struct track *track)
{
	(void)events, (void)earlier, (void)overview, (void)track;
}

void audit_look(struct audit *audit, const struct config *config, const struct overview *overview,
		struct procs *procs, struct track *track, struct events *events)
{
	(void)audit, (void)config, (void)overview, (void)procs, (void)track, (void)events;
}

void audit_close(struct audit *audit)
{
	(void)audit;
}

int events_configure(struct events *events, const struct config *config, struct fault *fault)
{
	(void)events, (void)config, (void)fault;
	return 0;
}

void events_close(struct events *events)
{
	(void)events;
}

void events_begin(struct events *events)
{
	(void)events;
}

void events_write(struct text *text, const struct events *events)
{
	(void)text, (void)events;
}

void metrics_write(struct text *text, const struct metrics_source *source)
{
	(void)text, (void)source;
}

static void look_says(struct watch *watch, const char *line)
{
	said[0] = '\0';
	watch_look(watch);
	assert_string_equal(said, line);
}

UNIT_TEST(test_the_reason_of_failed_looks_is_said_once)
{
	static struct watch watch = {.nvml_next_ns = UINT64_MAX};

	look_says(&watch, "");
	failure = "a reason";
	look_says(&watch, "a look at the machine failed, and older figures stay: a reason\n");
	look_says(&watch, "");
	no_track = true;
	failure = NULL;
	look_says(&watch, "a look at the machine failed, and older figures stay: there is no "
			  "memory to follow the slices\n");
	look_says(&watch, "");
	assert_int_equal(watch.self.failed_looks, 4);
	no_track = false;
	look_says(&watch, "looks at the machine succeed again\n");
	look_says(&watch, "");
	assert_int_equal(watch.self.looks, 3);
}
