/*
 * Memory pressure: the slices of a GPU hold more together than the GPU has, which they can by
 * managed memory. Then each change of turns moves memory, and turns are long
 * (docs/design/vgpud.md).
 */
#pragma once

#include "events.h"
#include "least_turns.h"
#include "overview.h"
#include "text.h"
#include "turns_server.h"

struct pressure_gpu {
	char uuid[VGPU_UUID_LEN]; /* "": none */
	uint64_t held_bytes, total_bytes;
	uint64_t length_ns;   /* the least length of a turn; 0: there is no pressure */
	unsigned blind_looks; /* consecutive looks at which NVML did not tell the total */
};

/* The GPUs of the last look. Zeroed at first. */
struct pressure {
	unsigned count;
	struct pressure_gpu gpu[TURNS_FILES_MAX];
	/* For those who look at the machine (least_turns.h): the file's text, and the socket that
	 * it is next to, "" for none. */
	char published[LEAST_TURNS_LEN];
	char published_at[sizeof(((struct turns_socket *)NULL)->path)];
	bool is_published; /* the text has been written */
	bool failed;       /* it could not be, and that has been said */
};

/* The least length of a turn on a GPU, which was `was_ns` until now; 0: there is no pressure. */
uint64_t pressure_length_ns(uint64_t held_bytes, uint64_t total_bytes, uint64_t was_ns);

/* After each look: compares what slices hold with what there is, tells events, and writes the
 * length of turns into the GPUs' files, and next to the socket, where there is one. */
void pressure_look(struct pressure *pressure, const struct overview *overview,
		   struct turns_server *server, struct events *events);
/* vgpud ends: there is no pressure in the files any more. */
void pressure_end(struct pressure *pressure, struct turns_server *server);

void pressure_write(struct text *text, const struct pressure *pressure);
