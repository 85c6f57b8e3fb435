/* cudaGetDeviceProperties: the driver's device attributes, by the runtime's names for them. */
#include "runtime.h"

#include <string.h>

/* An attribute that the driver does not know is 0. */
static int attribute(unsigned number, int device)
{
	int value = 0;

	return cu.cuDeviceGetAttribute(&value, number, device) ? 0 : value;
}

int rt_properties(struct cudaDeviceProp *ret_properties, int device)
{
	struct cudaDeviceProp found;
	int error = ret_properties ? cudaSuccess : cudaErrorInvalidValue;

	memset(&found, 0, sizeof found);
	if (!error)
		error = (int)cu.cuDeviceGetName(found.name, sizeof found.name, device);
	if (!error)
		error = (int)cu.cuDeviceGetUuid_v2(&found.uuid, device);
	if (!error)
		error = (int)cu.cuDeviceTotalMem_v2(&found.totalGlobalMem, device);
	if (error)
		return error;
#define SIZE(field, name, value)   found.field = (size_t)attribute(value, device);
#define NUMBER(field, name, value) found.field = attribute(value, device);
#define BITS(field, name, value)   found.field = (unsigned)attribute(value, device);
#include "properties.def"
	*ret_properties = found;
	return cudaSuccess;
}
