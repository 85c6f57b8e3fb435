#include "secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sys.h"

#define FILE_MAX      65536 /* bytes */
#define TOKEN_LEN_MIN 16    /* characters */

int secrets_suffice(const struct config *config, const char *address, bool is_local,
		    struct fault *fault)
{
	if (!*config->tls_certificate != !*config->tls_key)
		return fault_set(fault, -EINVAL,
				 "%s is set in vgpud.conf without %s: TLS needs both",
				 *config->tls_key ? "tls_key" : "tls_certificate",
				 *config->tls_key ? "tls_certificate" : "tls_key");
	if (is_local || (*config->tls_key && *config->token_file))
		return 0;
	return fault_set(fault, -EINVAL,
			 "other machines may reach %.100s, and %s is not set in vgpud.conf: set "
			 "tls_certificate, tls_key and token_file, or listen on 127.0.0.1:9742",
			 address, *config->tls_key ? "token_file" : "tls_certificate");
}

static int cannot_use(const char *path, int error, struct fault *fault)
{
	return fault_set(fault, error, "%.200s cannot be used: %s", path, strerror(-error));
}

/* A file with a secret must not be writable for its group, nor have any permission for
 * others. */
static int check_mode(const char *path, int fd, struct fault *fault)
{
	struct stat st;
	int error = sys_fstat(fd, &st);

	if (error)
		return cannot_use(path, error, fault);
	if (!(st.st_mode & (S_IRWXO | S_IWGRP)))
		return 0;
	return fault_set(fault, -EPERM, "others may read or write %.200s: chmod it to 0600", path);
}

static int read_text(const char *path, int fd, char **ret_text, struct fault *fault)
{
	char *text = malloc(FILE_MAX);
	long len = text ? sys_read(fd, text, FILE_MAX) : -ENOMEM;

	if (len > 0 && len < FILE_MAX) {
		text[len] = '\0';
		*ret_text = text;
		return 0;
	}
	free(text);
	if (len < 0)
		return cannot_use(path, (int)len, fault);
	return fault_set(fault, -EINVAL,
			 "%.200s cannot be used: it is empty, or has 64 KiB or more", path);
}

static int read_file(const char *path, bool is_secret, char **ret_text, struct fault *fault)
{
	int fd = sys_open(path, O_RDONLY, 0), error;

	if (fd < 0)
		return cannot_use(path, fd, fault);
	error = is_secret ? check_mode(path, fd, fault) : 0;
	if (!error)
		error = read_text(path, fd, ret_text, fault);
	sys_close(fd);
	return error;
}

/* Cuts the token to its first line. Returns -EINVAL if that is too short, or has characters
 * that cannot stand in a header. */
static int keep_token(const char *path, char *token, struct fault *fault)
{
	size_t len = strcspn(token, "\r\n");

	token[len] = '\0';
	for (size_t i = 0; i < len; i++)
		if (token[i] <= ' ' || token[i] >= 127)
			len = 0;
	if (len >= TOKEN_LEN_MIN)
		return 0;
	return fault_set(
		fault, -EINVAL,
		"the first line of %.200s is no token: write %d characters or more without "
		"blanks there, as `openssl rand -hex 32` prints them",
		path, TOKEN_LEN_MIN);
}

int secrets_read(const struct config *config, struct secrets *ret_secrets, struct fault *fault)
{
	struct secrets secrets = {NULL, NULL, NULL};
	int error = 0;

	if (*config->tls_certificate)
		error = read_file(config->tls_certificate, false, &secrets.certificate, fault);
	if (!error && *config->tls_key)
		error = read_file(config->tls_key, true, &secrets.key, fault);
	if (!error && *config->token_file)
		error = read_file(config->token_file, true, &secrets.token, fault);
	if (!error && secrets.token)
		error = keep_token(config->token_file, secrets.token, fault);
	if (error)
		secrets_free(&secrets);
	else
		*ret_secrets = secrets;
	return error;
}

static void forget(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

void secrets_free(struct secrets *secrets)
{
	forget(secrets->certificate);
	forget(secrets->key);
	forget(secrets->token);
	*secrets = (struct secrets){NULL, NULL, NULL};
}
