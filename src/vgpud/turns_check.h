/*
 * Weights in the files of turns. Every program that has a file may write any word of it, so vgpud
 * compares the weights with the slices' policies after each look, and puts them right
 * (docs/design/vgpud.md).
 */
#pragma once

#include "events.h"
#include "overview.h"
#include "text.h"
#include "track.h"
#include "turns_server.h"

/* After each look: puts weights right, tells events, and refuses turns to a slice whose weight is
 * too large again and again. */
void turns_check_look(struct turns_server *server, const struct overview *overview,
		      struct track *track, struct events *events);

void turns_check_write(struct text *text, const struct turns_server *server);
