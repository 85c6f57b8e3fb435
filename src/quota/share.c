/* Memory that goes from process to process: the region's share table, by this process's devices. */
#include "account.h"

#include "assertion.h"

void quota_share_begin(void)
{
	account_begin();
}

void quota_share_end(void)
{
	account_end();
}

int quota_share_export(int device, const struct region_descriptors *key, uint64_t bytes)
{
	return region_share_export_descriptors(&account_region, account_device(device)->index, key,
					       bytes);
}

bool quota_share_withdraw(int device, uint64_t key, uint64_t bytes, uint64_t charged_bytes)
{
	uint64_t more = bytes > charged_bytes ? bytes - charged_bytes : 0;
	bool stays;

	account_begin();
	account_charge_anyway(REGION_DATA, device, more);
	/* In case of an error the charge stays: another process may rely on the entry. */
	stays = region_share_withdraw(&account_region, key, bytes) != 0;
	if (!stays && more)
		account_refund(device, more);
	account_end();
	return stays;
}

bool quota_share_import(uint64_t key, uint64_t *ret_bytes)
{
	unsigned device;

	return region_share_import(&account_region, key, &device, ret_bytes) == 1;
}

void quota_share_import_end(uint64_t key)
{
	ASSERT(account_is_changing()); /* a charge that had moved here goes */
	region_share_import_end(&account_region, key);
}

uint64_t quota_share_key(int fd)
{
	return region_descriptor_key(&account_region, fd);
}

bool quota_share_left(const struct region_descriptors *key)
{
	return region_descriptors_left(&account_region, key) != 0;
}

/* Memory that is given back here was in no process's NVML figure, so the accounts do not change. */
bool quota_share_look(void)
{
	return region_share_look(&account_region);
}

void quota_hide(int device, uint64_t bytes, uint64_t charged_bytes)
{
	account_charge_anyway(REGION_OFFSET, device, bytes);
	account_refund(device, charged_bytes);
}

void quota_hidden_gone(int device, uint64_t bytes)
{
	account_refund_as(REGION_OFFSET, device, bytes);
}
