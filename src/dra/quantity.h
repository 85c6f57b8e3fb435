/* Kubernetes' quantities, as the API server writes them: "8Gi", "8589934592", "30", "1500m", "2e3".
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Reads a quantity as a whole number, rounded up. Returns 0; -EINVAL: the text is no quantity,
 * or a negative one; -ERANGE: it is 2^63 or more. */
int quantity_parse(const char *text, uint64_t *ret_value);

/* Writes bytes as the API server itself would: in the largest of Mi, Gi and Ti that gives a
 * whole number. The part below 1 Mi is dropped. Returns buf. */
char *quantity_format(uint64_t bytes, char *buf, size_t len);
