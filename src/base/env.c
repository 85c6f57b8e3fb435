#include "env.h"

#include <stddef.h>
#include <stdlib.h>

const char *env_get(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}
