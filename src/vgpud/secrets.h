/* What the server needs that nobody else may read: the key of its certificate, and the token. */
#pragma once

#include "config.h"

struct secrets {
	char *certificate, *key; /* in PEM; NULL: plain HTTP */
	char *token;             /* NULL: none is asked for */
};

/* Whether the configuration asks for what an address needs: where others than this machine's
 * processes reach it, TLS and a token. is_local: they do not. 0, or -EINVAL with a fault. */
int secrets_suffice(const struct config *config, const char *address, bool is_local,
		    struct fault *fault);

/* Reads the files that the configuration names: 0, or a negative errno with a fault. */
int secrets_read(const struct config *config, struct secrets *ret_secrets, struct fault *fault);
void secrets_free(struct secrets *secrets); /* also of zeroed ones */
