/* The secrets of the HTTP server: the key of its certificate, and the bearer token. */
#pragma once

#include "config.h"

struct secrets {
	char *certificate, *key; /* in PEM; NULL: plain HTTP */
	char *token;             /* NULL: no token is needed */
};

/* Checks that the configuration protects an address: TLS and a token are needed, unless
 * is_local, that is, only processes of this machine reach the address. Returns 0, or -EINVAL
 * with a fault. */
int secrets_suffice(const struct config *config, const char *address, bool is_local,
		    struct fault *fault);

/* Reads the files that the configuration names. Returns 0, or a negative errno with a fault.
 * The caller frees *ret_secrets. */
int secrets_read(const struct config *config, struct secrets *ret_secrets, struct fault *fault);
void secrets_free(struct secrets *secrets); /* also of zeroed ones */
