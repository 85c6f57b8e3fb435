/*
 * The world that the region's fuzzer puts under src/region/: one file, which is in memory and
 * leaves nothing behind; a clock that only waiting moves on; mappings that nothing lies beside; and
 * a bound to what one call may take.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "region.h"

#define WORLD_PATH "/region" /* the file, to region_open */
#define WORLD_SIZE sizeof(struct vgpu_region_file)

/* What must hold, or the input is a find. */
void must(bool holds);

void world_make(void); /* once; there is no file then */

void world_remove(void);          /* the next open finds no file */
void world_resize(uint64_t size); /* nobody may have it mapped, if it gets smaller */
size_t world_size(void);          /* bytes; 0 where there is no file */
void world_save(void);            /* the file as it is … */
void world_restore(void);         /* … and again */
void world_write(size_t offset, const void *bytes, size_t len); /* cut at the file's end */

/* Calls call() at a step of the region's (steps.h), after that many others; NULL for no more. */
void world_at_step(unsigned steps, void (*call)(void));

/* Around each call of the region's: aborts if it made too many system calls and steps, or waited
 * longer than patience allows. */
void world_begin(void);
void world_end(void);
