/* The exit of the process, where the process learns of it beforehand. */
#pragma once

/* The process has just been attached to its region: its slot is emptied when it exits. */
void exit_follow(void);

/* In a forked child: an exit that the parent has begun does not concern the child. */
void exit_forget(void);
