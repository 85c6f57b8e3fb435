/*
 * The entry points of dlsym, dlvsym and dlopen, which cannot be written in C. Each calls its
 * function in dlsym.c with the arguments and the caller's return address. That function returns two
 * words: an answer, and the address of a function to pass the call on to. If the second word is 0,
 * the first is the answer. Otherwise the call is passed on by a jump, with arguments, stack and
 * return address as they came. The loader finds RTLD_NEXT and RTLD_DEFAULT, run paths and
 * namespaces by the return address, which must be the application's.
 */

#if defined(__x86_64__)

	.macro ENTRY name, function, caller
	.globl \name
	.type \name, @function
\name:
	.cfi_startproc
	endbr64
	pushq %rdi
	.cfi_adjust_cfa_offset 8
	pushq %rsi
	.cfi_adjust_cfa_offset 8
	pushq %rdx
	.cfi_adjust_cfa_offset 8
	movq 24(%rsp), \caller
	call \function
	movq %rdx, %r11
	popq %rdx
	.cfi_adjust_cfa_offset -8
	popq %rsi
	.cfi_adjust_cfa_offset -8
	popq %rdi
	.cfi_adjust_cfa_offset -8
	testq %r11, %r11
	jz 1f
	jmp *%r11
1:	ret
	.cfi_endproc
	.size \name, .-\name
	.endm

	.text
	ENTRY dlsym, interpose_dlsym, %rdx
	ENTRY dlvsym, interpose_dlvsym, %rcx
	ENTRY dlopen, interpose_dlopen, %rdx

#elif defined(__aarch64__)

	.macro ENTRY name, function, caller
	.globl \name
	.type \name, %function
\name:
	.cfi_startproc
	hint #34 /* bti c */
	stp x29, x30, [sp, #-48]!
	.cfi_adjust_cfa_offset 48
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	mov x29, sp
	stp x0, x1, [sp, #16]
	str x2, [sp, #32]
	mov \caller, x30
	bl \function
	mov x16, x1
	mov x9, x0
	ldp x0, x1, [sp, #16]
	ldr x2, [sp, #32]
	ldp x29, x30, [sp], #48
	.cfi_adjust_cfa_offset -48
	.cfi_restore x29
	.cfi_restore x30
	cbz x16, 1f
	br x16
1:	mov x0, x9
	ret
	.cfi_endproc
	.size \name, .-\name
	.endm

	.text
	ENTRY dlsym, interpose_dlsym, x2
	ENTRY dlvsym, interpose_dlvsym, x3
	ENTRY dlopen, interpose_dlopen, x2

#else
#error "dlsym.S has no entry points for this architecture"
#endif

#include "marks.S"
