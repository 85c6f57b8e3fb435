/* Sizes, shares and times as people write them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * "512", "4096m", "8G", "8GiB" ...: a decimal number of bytes, with k, m, g or t in either case for
 * powers of 1024, and then "i", "B" or "iB" as one likes. A fraction such as "1.5G" is allowed, and
 * cut to thousandths; one of which nothing is left then is no size, since only a written 0 is 0.
 * Blanks around it are skipped. Returns 0, -EINVAL (not a size) or -ERANGE (over 2^63 bytes).
 */
int size_parse(const char *text, uint64_t *ret_bytes);

/* "0 B", "2 MiB", "7.98 GiB": the largest unit that gives at least 1, two decimals at most, always
 * rounded down so that nothing looks free that is not. Returns buf. */
char *size_format(uint64_t bytes, char *buf, size_t len);

/* A whole decimal number from 0 to max, blanks around it skipped. 0, -EINVAL or -ERANGE. */
int number_parse(const char *text, uint64_t max, uint64_t *ret_number);

/*
 * A percentage from 0 to max: a decimal number, and then "%" as one likes. A fraction such as
 * "50.5" is rounded down, but never to 0: only a written 0 is 0. Blanks around it are skipped. 0,
 * -EINVAL or -ERANGE.
 */
int percent_parse(const char *text, uint64_t max, uint64_t *ret_pct);

/*
 * "25ms", "0.5s", "100us", "20000ns": a time from 0 to max_ns, in ns. A fraction is cut to
 * thousandths of the unit. Only 0 needs no unit, and only a written 0 is 0. Blanks around it are
 * skipped. 0, -EINVAL or -ERANGE.
 */
int time_parse(const char *text, uint64_t max_ns, uint64_t *ret_ns);

/* "0", "25ms", "1500us": exactly, in the largest unit that gives a whole number. Returns buf. */
char *time_format(uint64_t ns, char *buf, size_t len);

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
