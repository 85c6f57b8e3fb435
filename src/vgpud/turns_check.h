/*
 * Checks the weights in the files of turns. Every program that has a file may write any word of it.
 * So vgpud compares the weights with the slices' policies after each look, and corrects them
 * (docs/design/vgpud.md).
 */
#pragma once

#include "events.h"
#include "overview.h"
#include "text.h"
#include "track.h"
#include "turns_server.h"

/* Call it after each look. It corrects weights and reports events. A slice whose weight is too
 * large again and again is refused turns. */
void turns_check_look(struct turns_server *server, const struct overview *overview,
		      struct track *track, struct events *events);

/* Adds the metrics of corrected and unchecked weights. */
void turns_check_write(struct text *text, const struct turns_server *server);
