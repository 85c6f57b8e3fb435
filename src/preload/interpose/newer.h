/* Functions of a driver that is newer than the list of api/symbols. They have no hooks. */
#pragma once

/* The application gets the driver's own function of that name. If the function may make the device
 * hold more memory and is not in the list, a line says so, once in a process. */
void newer_handed_out(const char *name);

/* The application looks the name up with the loader, and no hook has that name. The same line is
 * printed if the driver that is loaded exports the name. */
void newer_looked_up(const char *name);
