/* Memory that goes from process to process: the region's share table, by this process's devices. */
#include "account.h"

int quota_share_export(int device, uint64_t key, uint64_t bytes)
{
	return region_share_export(&account_region, account_device(device)->index, key, bytes);
}

bool quota_share_withdraw(uint64_t key, uint64_t bytes)
{
	return region_share_withdraw(&account_region, key, bytes) == 1;
}

bool quota_share_import(uint64_t key, uint64_t *ret_bytes)
{
	unsigned device;

	return region_share_import(&account_region, key, &device, ret_bytes) == 1;
}

void quota_share_import_end(uint64_t key)
{
	account_begin(); /* a charge that had moved here goes */
	region_share_import_end(&account_region, key);
	account_end();
}

void quota_hide(int device, uint64_t bytes)
{
	region_charge(&account_region, account_device(device)->index, REGION_OFFSET, bytes, 0);
	account_refund(device, bytes);
}

void quota_hidden_gone(int device, uint64_t bytes)
{
	account_refund_as(REGION_OFFSET, device, bytes);
}
