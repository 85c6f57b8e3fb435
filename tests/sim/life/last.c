/* A library whose destructor runs after the preloaded one's, as it is loaded later. */
#include "last.h"

void (*last_call)(void);

__attribute__((destructor)) static void call_last(void)
{
	if (last_call)
		last_call();
}
