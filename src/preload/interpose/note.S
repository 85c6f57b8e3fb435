/*
 * How libvgpu.so is told from other libraries of that file name, HAMi-core's above all, and which
 * version it is: an ELF note of the owner "vgpu", type 1, whose contents are the version's text.
 * `vgpu doctor` looks for it, in files and in memory; `readelf -n` shows it. Nothing is exported.
 */

	.section .note.vgpu, "a", %note
	.balign 4
	.long 2f - 1f
	.long 4f - 3f
	.long 1
1:	.asciz "vgpu"
2:	.balign 4
3:	.asciz VGPU_VERSION
4:	.balign 4

#include "marks.S"
