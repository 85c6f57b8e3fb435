/* A free under way at an address: of a block of the accounts, or of anything else. */
#pragma once

#include "allocation.h"
#include "context.h"
#include "cuda_abi.h"
#include "import.h"
#include "quota.h"

/* Between freeing_begin and the end of whichever it is, no comparison lowers the accounts. */
struct freeing {
	bool is_block;
	uint64_t ends;                /* quota_context_ends() before the driver's call */
	struct quota_release release; /* if is_block: ends with quota_free_commit, for example */
	struct quota_pointer pointer; /* else: ends with quota_pointer_free_end */
};

/* Called before the driver's call. */
static inline void freeing_begin(CUdeviceptr address, struct freeing *ret_freeing)
{
	ret_freeing->ends = quota_context_ends();
	ret_freeing->is_block =
		address && quota_attached() && quota_free_begin(address, &ret_freeing->release);
	if (!ret_freeing->is_block)
		quota_pointer_free_begin(address, &ret_freeing->pointer);
}

/* The block was put into the accounts. Another thread may have ended the context before, and the
 * block with it. ends: quota_context_ends() before the driver was called. */
static inline void freeing_drop_if_ended(const struct block *block, uint64_t ends)
{
	struct quota_release release;

	if (quota_context_has_ended(block->context, ends) &&
	    quota_is_block_of(block->context, block->address) &&
	    quota_free_begin(block->address, &release))
		quota_free_commit(&release);
}

/* Whether the context of the block has ended, and the block with it. */
static inline bool freeing_has_ended(const struct freeing *freeing)
{
	return quota_context_has_ended(freeing->release.block.context, freeing->ends);
}

/* The driver has refused to free the block. If its context has ended, another block may be there.
 */
static inline void freeing_undo(const struct freeing *freeing)
{
	if (freeing_has_ended(freeing)) {
		quota_free_commit(&freeing->release);
		return;
	}
	quota_free_undo(&freeing->release);
	freeing_drop_if_ended(&freeing->release.block, freeing->ends);
}
