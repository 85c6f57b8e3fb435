/*
 * Inside pace/: a gang, whose members are throttled together. A member is one process's work on one
 * device. A device's group is a gang, too (GANG_OF_DEVICE). docs/design/gangs.md has the states of
 * a gang, what a gang pays, what bounds it, and the rules in which a group differs.
 *
 * There is no lock. Each word is stored by itself, and a process that dies between two of them
 * costs the gang some milliseconds.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "vgpu_region.h"

enum gang_kind {
	GANG_OF_SLICE,  /* the slice's own; all of its words are in the region */
	GANG_OF_SLICES, /* of several slices; its words are in a file that they share. A process
			   charges, and counts as throttled, only its own slice's devices */
	GANG_OF_DEVICE, /* a device's group: the processes of the slice that use one device, one
			   after the other (holder.h) */
};

/* A gang, as one process sees it. */
struct gang {
	enum gang_kind kind;
	struct vgpu_region_group *words;
	struct vgpu_region_gang *table;     /* has the members, of this gang and of others */
	struct vgpu_region_device *devices; /* of the process's region */
	struct vgpu_region_turn *turns; /* likewise; a gang of several slices alone needs them */
	uint64_t slice; /* what its members have in `slice`; GANG_OF_SLICES: those of the process's
			   slice */
	/* Whether that process lives; may cost 1 us. */
	bool (*lives)(const struct gang *gang, uint32_t owner);
	/* The device's quota in percent as far as the process knows it, else 0. NULL: it is always
	 * 0. */
	unsigned (*quota)(uint32_t device);
};

/* The state of a member that only its own process knows; any thread of the process may write it. */
struct gang_member {
	struct vgpu_region_member *entry; /* NULL: the process never was a member */
	bool is_joined;                   /* it is a member; atomic */
	uint32_t device;                  /* the member's: one of gang->devices */
	uint64_t closing_since; /* when the closing began that the next fields describe, as the
				 * member saw it in the gang's shut_at; 0: none */
	uint64_t quiet_ns;      /* since when the other members have made no progress */
	uint32_t progress;      /* the sum of their `progress` at quiet_ns */
	uint32_t let_go;        /* launches that were admitted because nothing made progress */
	uint32_t part;    /* its own count of collectives divided by the largest count, the mean of
			     the last cuts, times GANG_PART_ONE; 0: not known */
	bool was_busy;    /* the member had work in flight when it asked last */
	bool is_cut;      /* the member has seen the cut */
	uint64_t used_ns; /* the gang's, when the member looked last */
	int64_t paid_ns;  /* the sum of all charges of its device's bucket at that look */
	uint64_t paid_until_ns; /* until when the device had paid at that look */
	/* gang_turn.h's. */
	uint64_t dated_for;  /* the gang's shut_at for which the next one was found; 0: none */
	uint64_t date_ns;    /* when the device could be the slice's */
	uint64_t waits_at;   /* when a launch of the member asked last */
	uint64_t turn_in;    /* the gang's opened_at after which the device had its turn, or needed
			      * none */
	uint64_t turn_asked; /* when a launch last asked for the turn, and had it */
	uint64_t turn_ns;    /* how long the last openings took in which the device had its turn, */
	int64_t turn_used_ns;  /* and what it paid in them */
	uint64_t turn_from_ns; /* when the present one began, and what it had paid then */
	int64_t turn_paid_ns;
	uint32_t turn_count; /* how many there were */
	uint64_t asked_ns;   /* since when the open gang has waited for that turn; before opened_at:
			      * it does not */
	/* Of a device's group. The caller sets the first before gang_is_busy; the others are
	 * holder.h's. */
	uint64_t expects_ns; /* until when the work in flight will have ended; 0: not known */
	uint64_t holds_ns;   /* since when the member is the holder */
	uint64_t waits_ns;   /* since when it waits for another one, or as the holder for the end of
			      * its work; 0: it does not */
	uint64_t free_ns; /* since when it leaves the device, which is free, to another; 0: it does
			     not */
};

/* Takes a free entry for the owner's work on the device; false if there is none. If the gang has
 * too few living members to throttle launches, this opens it first. A device's group throttles
 * launches from one member on, another gang from two. */
bool gang_join(const struct gang *gang, struct gang_member *self, uint32_t owner, uint32_t device);
/* gang_join with an entry that is the caller's already. */
void gang_join_at(const struct gang *gang, struct gang_member *self, unsigned entry, uint32_t owner,
		  uint32_t device);
void gang_leave(struct gang_member *self);

/* How many members live. */
unsigned gang_members(const struct gang *gang);

/* The member has launched a kernel or graph that may wait for other members. */
void gang_launched_collective(const struct gang *gang, struct gang_member *self);

/* While the gang is open, a member with so many ns of work in flight waits, so that little is in
 * flight when the gang closes. level_ns: of the member's bucket. */
uint64_t gang_ahead_most_ns(const struct gang *gang, int64_t level_ns, uint64_t now_ns);

/* The present state of a member that wants to launch. */
struct gang_sight {
	int64_t level_ns;  /* of its device's bucket */
	uint64_t ready_ns; /* in so many ns the bucket has no debt, if nothing is charged; 0: now */
	bool in_flight;    /* its device has work of it in flight, */
	uint64_t ahead_ns; /* and about how much */
	bool several;      /* the process has other members: a thread may serve several devices */
	bool is_over;      /* its device's turn is over: another slice has the next one */
	bool for_turn;     /* a launch of it waits for its device's turn */
};

/* 0: a launch of the member is admitted now. Otherwise the time in ns that it should wait until it
 * asks again. After gang_count. */
uint64_t gang_ask(const struct gang *gang, struct gang_member *self, const struct gang_sight *sight,
		  uint64_t now_ns);

/* Publishes when the member will be ready, in ready_ns from now; for_turn: a launch of it waits for
 * its device's turn. gang_ask does so, too. */
void gang_note_ready(const struct gang *gang, struct gang_member *self, uint64_t ready_ns,
		     bool for_turn, uint64_t now_ns);

/* Whether another member of the open gang waits for its device's turn. */
bool gang_waits_for_turn(const struct gang *gang, const struct gang_member *self, uint64_t now_ns);

/* The last time that a living member has published, at which the gang opens; now_ns if that has
 * passed. */
uint64_t gang_date_ns(const struct gang *gang, uint64_t now_ns);

/* The slice takes turns on the device of the gang, which throttles no launch meanwhile. */
void gang_begin_turns(const struct gang *gang, uint64_t now_ns);

/* Whether the gang is neither closing nor shut. While it is not open, each launch is followed by a
 * mark at once. */
bool gang_is_open(const struct gang *gang);
