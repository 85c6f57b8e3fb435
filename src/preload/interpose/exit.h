/* The end of the process, as far as it is announced. */
#pragma once

/* The process has just been attached to its region: its slot is emptied when it exits. */
void exit_follow(void);

/* In a forked child: the parent's exit is none of the child's. */
void exit_forget(void);
