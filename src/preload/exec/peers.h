/* Memory of one device that kernels on another can reach. */
#pragma once

#include "cuda_abi.h"

/* Memory of another process was opened at the address, for the current context. If the memory is on
 * another device than the context, that is a sign (signs.h) for the context's device. */
void peers_opened(CUdeviceptr address);
