/* The making of contexts (context.c), towards fork. */
#pragma once

/* In a forked child: whoever made or ended a context in the parent does not here. */
void making_forget(void);
