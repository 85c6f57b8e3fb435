/* A plugin that is linked with the driver and has its functions in a table that the loader fills.
 */
#define DRIVER_TABLE
#include "driver.h"

EXPORT void plugin_run(const char *argument);

void plugin_run(const char *argument)
{
	(void)argument;
	check_held();
}
