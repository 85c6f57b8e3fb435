/*
 * What /etc/vgpu/vgpud.conf says; vgpud(8) has the whole list. Every setting has a default, so an
 * empty file is a good one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"

#define CONFIG_PATH "/etc/vgpu/vgpud.conf"

struct config {
	/* metrics */
	char *listen;          /* ADDRESS:PORT; "": nobody is served */
	char *tls_certificate; /* files in PEM; "": plain HTTP */
	char *tls_key;
	char *token_file;            /* its first line is the bearer token; "": none is asked for */
	unsigned connections;        /* at once, of all clients */
	unsigned client_connections; /* at once, of one address */
	unsigned timeout_s;          /* how long a connection lives at most */
	bool hami;                   /* also with HAMi's names */
	char *pods;                  /* the kubelet's directory of logs */
	/* turns */
	char *socket; /* where programs are handed files of turns; "": they are not */
	/* events */
	char *events_file;   /* for JSON lines; "-" is stdout, "": none are written */
	bool events_journal; /* also entries of the journal, where there is one */
	/* audit */
	uint64_t audit_excess_bytes;              /* so much a slice may hold above its ledger */
	bool audit_end_outside, audit_end_excess; /* which processes are ended */
	unsigned audit_grace_s;                   /* how long after they were found */
	char **audit_allow; /* programs that may be on a GPU without a slice; ends with NULL */
};

/* Reads it; must_exist: it is an error where there is no such file, else all are defaults then. 0,
 * or a negative errno with a fault that names the file, the line and what would be right. */
int config_load(const char *path, bool must_exist, struct config *ret_config, struct fault *fault);
void config_free(struct config *config); /* also of a zeroed one */
