/* A program that is linked with the driver and calls it. */
#define CALL(name) name
#include "driver.h"
#include "wrapper.h"

int main(void)
{
	check_held();
	check_wrapper();
	return 0;
}
