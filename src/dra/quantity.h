/* Kubernetes' quantities, as the API server writes them: "8Gi", "8589934592", "30", "1500m", "2e3".
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* A quantity as a whole number, rounded up. 0; -EINVAL: it is none, or is negative; -ERANGE: it is
 * 2^63 or more. */
int quantity_parse(const char *text, uint64_t *ret_value);

/* Bytes in the form that the API server itself would write: the largest of Mi, Gi and Ti that gives
 * a whole number. What is less than a Mi is dropped. Returns buf. */
char *quantity_format(uint64_t bytes, char *buf, size_t len);
