/*
 * Included at the end of our assembly files: what compilers say of C. The stack is not executable;
 * and where the build protects branches, indirect jumps arrive where they may (BTI, IBT). The linker
 * believes that of the library only when every part of it says so.
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
