/*
 * An ELF note of the owner "vgpu", type 1, whose contents are the text of the version. It tells
 * libvgpu.so from other libraries of that file name, such as HAMi-core's. `vgpu doctor` looks for
 * the note, in files and in memory; `readelf -n` shows it. Nothing is exported.
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
