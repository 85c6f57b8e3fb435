/*
 * Memory pressure: the slices of a GPU together hold more than the GPU has, which managed
 * memory makes possible. Then each change of turns moves memory, so turns are made long
 * (docs/design/vgpud.md).
 */
#pragma once

#include "events.h"
#include "least_turns.h"
#include "overview.h"
#include "text.h"
#include "turns_server.h"

struct pressure_gpu {
	char uuid[VGPU_UUID_LEN]; /* "": the entry is free */
	uint64_t held_bytes, total_bytes;
	uint64_t length_ns;   /* the least length of a turn; 0: there is no pressure */
	unsigned blind_looks; /* consecutive looks at which NVML did not tell the total */
};

/* The GPUs of the last look. Zero it before the first look. */
struct pressure {
	unsigned count;
	struct pressure_gpu gpu[TURNS_FILES_MAX];
	/* The file that `vgpu ps` and others read (least_turns.h): its text, and the path of
	 * the socket that the file is next to; "": there is no file. */
	char published[LEAST_TURNS_LEN];
	char published_at[sizeof(((struct turns_socket *)NULL)->path)];
	bool is_published; /* the text has been written */
	bool failed;       /* writing it failed, and that was logged */
};

/* The least length of a turn on a GPU in ns; 0: there is no pressure. was_ns: the result at the
 * last look. */
uint64_t pressure_length_ns(uint64_t held_bytes, uint64_t total_bytes, uint64_t was_ns);

/* Call it after each look. It compares what slices hold with what GPUs have and reports changes
 * as events. It writes the length of turns into the GPUs' files, and into the file next to the
 * socket. */
void pressure_look(struct pressure *pressure, const struct overview *overview,
		   struct turns_server *server, struct events *events);
/* Call it when vgpud ends. It removes the pressure from the files. */
void pressure_end(struct pressure *pressure, struct turns_server *server);

/* Adds the metrics of memory pressure. */
void pressure_write(struct text *text, const struct pressure *pressure);
