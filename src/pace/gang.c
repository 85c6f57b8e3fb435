#include "pace.h"

void pace_set_gang(enum pace_gang gang)
{
	(void)gang;
}

void pace_join_gang(int device)
{
	(void)device;
}
