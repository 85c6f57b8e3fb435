/* The files with vgpud's secrets, when the calls that read them fail. */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>

#include "place.h"
#include "secrets.h"
#include "sys.h"

#define TOKEN "0123456789abcdef"

static long failing_number;
static int failing_error;

static long fail_number(long number)
{
	return number == failing_number ? failing_error : 0;
}

static struct config config_with(void)
{
	FILE *file = fopen(here.path, "w");

	assert_non_null(file);
	assert_true(fputs(TOKEN "\n", file) >= 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(here.path, 0600), 0);
	return (struct config){.tls_certificate = "", .tls_key = "", .token_file = here.path};
}

/* Reads the token while that call fails, and checks that the failure is reported. */
static void refuse(const struct config *config, long number, int error)
{
	struct secrets secrets = {NULL, NULL, NULL};
	struct fault fault = {""};

	failing_number = number;
	failing_error = error;
	sys_fault = fail_number;
	assert_int_equal(secrets_read(config, &secrets, &fault), error);
	sys_fault = NULL;
	assert_null(secrets.token);
	assert_non_null(strstr(fault.text, config->token_file));
	assert_non_null(strstr(fault.text, strerror(-error)));
}

UNIT_TEST(test_reads_the_first_line)
{
	struct config config = config_with();
	struct secrets secrets = {NULL, NULL, NULL};
	struct fault fault = {""};

	assert_int_equal(secrets_read(&config, &secrets, &fault), 0);
	assert_string_equal(secrets.token, TOKEN);
	secrets_free(&secrets);
}

/* The mode of the file may be anything then. */
UNIT_TEST(test_a_mode_that_is_not_known_is_refused)
{
	struct config config = config_with();

	refuse(&config, SYS_fstat, -EIO);
}

UNIT_TEST(test_every_failure_is_reported)
{
	struct config config = config_with();

	refuse(&config, SYS_openat, -EPERM);
	refuse(&config, SYS_openat, -EACCES);
	refuse(&config, SYS_read, -EIO);
}
