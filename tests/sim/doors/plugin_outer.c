/* A plugin that knows nothing of the driver, but is linked with one that does. */
#include "export.h"

EXPORT void plugin_run(const char *argument);
void inner_run(const char *argument);

void plugin_run(const char *argument)
{
	inner_run(argument);
}
