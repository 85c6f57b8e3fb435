/* A normal exit of the process, by exit, quick_exit or _exit. */
#pragma once

/* Called when the process has taken its slot. From then on, a normal exit empties the slot. */
void exit_follow(void);

/* In a forked child: an exit that the parent has begun does not concern the child. */
void exit_forked(void);
