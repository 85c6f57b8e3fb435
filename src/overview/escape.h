/* Makes text of unknown origin (names, paths, arguments) safe to print on a terminal. */
#pragma once

#include <stddef.h>

/*
 * Writes text into buf and returns buf. Printable ASCII and printable UTF-8 stay as they are.
 * Each byte of a control character (C0, DEL, C1, a format character that reorders or hides
 * text) and each byte that is not valid UTF-8 becomes \xNN. The result always ends with NUL;
 * text that does not fit is cut off between two characters. buf has len bytes, at least 1.
 */
char *escape(const char *text, char *buf, size_t len);
