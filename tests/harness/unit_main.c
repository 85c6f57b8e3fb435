/* For programs of unit tests that have no main function of their own. */

#include "unit.h"

int main(int argc, char **argv)
{
	return unit_main(argc, argv);
}
