/* For programs of unit tests that have no main function of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit.h"

int main(int argc, char **argv)
{
	return unit_main(argc, argv);
}
