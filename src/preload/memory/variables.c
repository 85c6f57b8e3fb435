/*
 * Managed variables are charged when the application looks up their address, as cuMemAllocManaged
 * charges a block of their size. The driver takes their memory when it loads the module, and no
 * call reports that. NVML counts managed memory for no process, so no comparison finds it. The CUDA
 * runtime looks up all of them when it loads a program's code, before the program uses any.
 *
 * A look-up that does not fit is refused, and so is the next one.
 *
 * The application cannot free a variable: the driver refuses its address. The variable ends with
 * its module, its library or its context. After one of these has ended, the driver is asked whether
 * the address of each charged variable still is managed memory. If the driver gives no clear
 * answer, or other managed memory is at the address by then, the charge stays until a later such
 * call finds none there.
 */
#include "variables.h"

#include <errno.h>

#include "cuda.h"
#include "headroom.h"
#include "quota.h"
#include "variable.h"

static CUresult ask(CUdeviceptr address, bool *ret_managed)
{
	unsigned int managed = 0;
	CUresult result =
		cuda.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);

	*ret_managed = managed != 0;
	return result;
}

/* Fills in is_managed. */
static CUresult complete(struct variable *variable)
{
	CUresult result;

	if (variable->is_managed)
		return CUDA_SUCCESS;
	result = ask(variable->address, &variable->is_managed);
	return result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result;
}

static bool has_ended(CUdeviceptr address)
{
	bool managed;
	CUresult result = ask(address, &managed);

	return result == CUDA_ERROR_INVALID_VALUE || (result == CUDA_SUCCESS && !managed);
}

/* The current context's device. A library's managed variables can be looked up without a context.
 * Then it is the slice's first device. */
static CUdevice device_of_look_up(void)
{
	CUdevice device;

	if (cuda.cuCtxGetDevice(&device) == CUDA_SUCCESS)
		return device;
	for (device = 0; device < VGPU_DEVICES_MAX; device++)
		if (quota_has_device(device))
			break;
	return device;
}

CUresult variables_admit(struct variable *variable)
{
	CUdevice device;
	CUresult result;
	bool counted;
	int error;

	if (!quota_attached())
		return CUDA_SUCCESS;
	result = complete(variable);
	if (result != CUDA_SUCCESS || !variable->is_managed)
		return result;
	device = device_of_look_up();
	result = headroom_on(device, &counted);
	if (result != CUDA_SUCCESS || !counted)
		return result;
	error = quota_variable_charge(device, variable->address, variable->bytes);
	if (error == -EDQUOT) {
		headroom_make(device);
		error = quota_variable_charge(device, variable->address, variable->bytes);
	}
	return error ? headroom_refuse(device, variable->bytes, error) : CUDA_SUCCESS;
}

CUresult variables_hand_out(struct variable *variable, CUresult result, CUdeviceptr *dptr,
			    size_t *bytes)
{
	if (result == CUDA_SUCCESS)
		result = variables_admit(variable);
	if (result != CUDA_SUCCESS)
		return result;
	if (dptr)
		*dptr = variable->address;
	if (bytes)
		*bytes = variable->bytes;
	return CUDA_SUCCESS;
}

void variables_refund_ended(void)
{
	const uint64_t last = quota_variable_look_ups();
	struct quota_variable variable = {.look_up = 0};

	while (quota_variable_next(&variable) && variable.look_up <= last)
		if (has_ended(variable.address))
			quota_variable_forget(&variable);
}
