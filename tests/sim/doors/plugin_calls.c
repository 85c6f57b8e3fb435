/* A plugin that is linked with the driver and calls it. */
#define CALL(name) name
#include "driver.h"

/* Another name where it is the library of a plugin. */
#ifndef PLUGIN_RUN
#define PLUGIN_RUN plugin_run
#endif

EXPORT void PLUGIN_RUN(const char *argument);

void PLUGIN_RUN(const char *argument)
{
	(void)argument;
	check_held();
}
