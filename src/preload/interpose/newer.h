/* Functions of a driver that is newer than the list of api/symbols. They have no hooks. */
#pragma once

/* Called when the application gets the driver's own function of that name. If the function may take
 * device memory and is not in the list, logs a line, once in a process. */
void newer_handed_out(const char *name);

/* Called when the application looks the name up with the loader, and no hook has that name. The
 * same line is printed if the driver that is loaded exports the name. */
void newer_looked_up(const char *name);
