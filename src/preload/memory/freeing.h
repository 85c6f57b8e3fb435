/* What is being freed at an address: a block of the accounts, or anything else. */
#pragma once

#include "allocation.h"
#include "cuda_abi.h"
#include "import.h"
#include "quota.h"

/* Between freeing_begin and the end of whichever it is, no comparison lowers the accounts. */
struct freeing {
	bool is_block;
	struct quota_release release; /* if is_block: ends with quota_free_commit, for example */
	struct quota_pointer pointer; /* else: ends with quota_pointer_free_end */
};

/* Called before the driver's call. */
static inline void freeing_begin(CUdeviceptr address, struct freeing *ret_freeing)
{
	ret_freeing->is_block =
		address && quota_attached() && quota_free_begin(address, &ret_freeing->release);
	if (!ret_freeing->is_block)
		quota_pointer_free_begin(address, &ret_freeing->pointer);
}
