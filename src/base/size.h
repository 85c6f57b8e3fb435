/* Sizes, percentages and times as text that people write and read. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * Parses a size, such as "512", "4096m", "8G" or "8GiB": a decimal number of bytes. k, m, g or t
 * after it, in either case, stands for a power of 1024; then "i", "B" or "iB" may follow. A
 * fraction such as "1.5G" is cut to thousandths. A text that gives 0 bytes is no size, unless its
 * number is 0. Blanks around the size are skipped. Returns 0, -EINVAL (not a size) or -ERANGE (over
 * 2^63 bytes).
 */
int size_parse(const char *text, uint64_t *ret_bytes);

/* Writes a size, such as "0 B", "2 MiB" or "7.98 GiB": in the largest unit that gives at least 1,
 * with two decimals at most. The size is rounded down, so that no memory looks free that is not.
 * Returns buf. */
char *size_format(uint64_t bytes, char *buf, size_t len);

/* Parses a whole decimal number from 0 to max. Blanks around the number are skipped. Returns 0,
 * -EINVAL (not a number) or -ERANGE (over max). */
int number_parse(const char *text, uint64_t max, uint64_t *ret_number);

/*
 * Parses a percentage from 0 to max: a decimal number, and "%" or nothing. A fraction such as
 * "50.5" is rounded down, but never to 0. Blanks around the percentage are skipped. Returns 0,
 * -EINVAL (not a percentage) or -ERANGE (over max).
 */
int percent_parse(const char *text, uint64_t max, uint64_t *ret_pct);

/*
 * Parses a time from 0 to max_ns, such as "25ms", "0.5s", "100us" or "20000ns". A fraction is cut
 * to thousandths of the unit. Only 0 needs no unit. A text that gives 0 ns is no time, unless its
 * number is 0. Blanks around the time are skipped. Returns 0, -EINVAL (not a time) or -ERANGE (over
 * max_ns).
 */
int time_parse(const char *text, uint64_t max_ns, uint64_t *ret_ns);

/* Writes a time, such as "0", "25ms" or "1500us": exactly, in the largest unit that gives a whole
 * number. Returns buf. */
char *time_format(uint64_t ns, char *buf, size_t len);

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
