/*
 * The settings in /etc/vgpu/vgpud.conf; vgpud(8) has the whole list. Every setting has a
 * default, so an empty file is valid.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"

#define CONFIG_PATH "/etc/vgpu/vgpud.conf"

struct config {
	/* metrics */
	char *listen;          /* ADDRESS:PORT; "": metrics are not served */
	char *tls_certificate; /* files in PEM; "": plain HTTP */
	char *tls_key;
	char *token_file;     /* its first line is the bearer token; "": no token is needed */
	unsigned connections; /* most at once, of all clients together */
	unsigned client_connections; /* most at once, of one address */
	unsigned timeout_s;          /* the longest that a connection lives */
	bool hami;                   /* metrics also have HAMi's names */
	char *pods;                  /* the kubelet's directory of logs */
	char *containers;            /* the kubelet's directory of links to logs */
	/* turns */
	char *socket; /* the path at which vgpud hands out files of turns; "": nowhere */
	/* events */
	char *events_file;   /* for JSON lines; "-": stdout; "": none are written */
	bool events_journal; /* events are also entries of the journal, where there is one */
	/* audit */
	uint64_t audit_excess_bytes;              /* what a slice may hold above its ledger */
	bool audit_end_outside, audit_end_excess; /* whether such processes are ended */
	unsigned audit_grace_s;                   /* from the first finding to SIGTERM */
	char **audit_allow; /* paths of programs that need no slice; NULL at the end */
};

/* Reads the settings from path. Without a file there, all settings are defaults, unless
 * must_exist: then that is an error. Returns 0; or a negative errno with a fault that names the
 * file, the line and a correct value. The caller frees *ret_config. */
int config_load(const char *path, bool must_exist, struct config *ret_config, struct fault *fault);
void config_free(struct config *config); /* also of a zeroed one */
