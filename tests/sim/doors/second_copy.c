/* second_copy: the driver in a namespace of its own first, then in the program's: no copy may be
 * handed out that is not held. */
#include "driver.h"
#include "ways.h"

int main(void)
{
	if (by_new_namespace("cuMemAlloc_v2")) {
		find_driver(by_new_namespace);
		check_held();
	}
	if (!by_handle("cuMemAlloc_v2"))
		return 0; /* refused is as good as held */
	find_driver(by_handle);
	check_held();
	return 0;
}
