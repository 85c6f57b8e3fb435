/*
 * Included at the end of our assembly files: the marks that a compiler adds to C. The stack is not
 * executable; and where the build protects branches, indirect jumps only go where they may (BTI, IBT).
 * The linker marks the library so only if all its object files have the marks.
 */

	.section .note.GNU-stack, "", %progbits

#if defined(__x86_64__) && defined(__CET__)
#include <cet.h>
#elif defined(__aarch64__) && defined(__ARM_FEATURE_BTI_DEFAULT)

/* GNU_PROPERTY_AARCH64_FEATURE_1_AND: BTI alone, as return addresses are not signed in ours. */
	.section .note.gnu.property, "a", %note
	.balign 8
	.long 4, 16, 5
	.asciz "GNU"
	.long 0xc0000000, 4, 1, 0
#endif
