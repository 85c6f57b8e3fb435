/* Managed variables of modules and libraries. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cuda_abi.h"

/* A variable as the driver reports it. The application does not have it yet. */
struct variable {
	CUdeviceptr address;
	size_t bytes;
	bool is_managed; /* false: the driver has not been asked */
};

/* After a look-up. Charges the variable if it is managed. CUDA_SUCCESS: the application may have
 * it. */
CUresult variables_admit(struct variable *variable);

/* The end of a look-up, to which the driver answered `result`: variables_admit, and then *dptr and
 * *bytes are set. Either may be NULL. */
CUresult variables_hand_out(struct variable *variable, CUresult result, CUdeviceptr *dptr,
			    size_t *bytes);

/* Called after a module, a library or a context has ended: refunds the managed variables that ended
 * with it. */
void variables_refund_ended(void);
