/* Where the state directories are, and which names are those of slices. */
#include "state_dir.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "env.h"

bool state_path(char ret_path[STATE_PATH_MAX])
{
	const char *named = env_get("VGPU_STATE"), *runtime = env_get("XDG_RUNTIME_DIR");
	int len;

	if (named)
		len = snprintf(ret_path, STATE_PATH_MAX, "%s", named);
	else if (geteuid() == 0)
		len = snprintf(ret_path, STATE_PATH_MAX, STATE_ROOT_DIR);
	else if (runtime)
		len = snprintf(ret_path, STATE_PATH_MAX, "%s/vgpu", runtime);
	else
		len = snprintf(ret_path, STATE_PATH_MAX, "/tmp/vgpu-%u", (unsigned)geteuid());
	return len < (int)STATE_PATH_MAX;
}

static bool is_listed(char paths[][STATE_PATH_MAX], unsigned count, const struct stat *st)
{
	struct stat other;

	for (unsigned i = 0; i < count; i++)
		if (stat(paths[i], &other) == 0 && other.st_dev == st->st_dev &&
		    other.st_ino == st->st_ino)
			return true;
	return false;
}

unsigned state_own_paths(char ret_paths[STATE_OWN_MAX][STATE_PATH_MAX])
{
	static const char *const parts[][2] = {{"/run/user/", "/vgpu"}, {"/tmp/vgpu-", ""}};
	unsigned count = state_path(ret_paths[0]);

	if (env_get("VGPU_STATE") || geteuid() == 0)
		return count;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		struct stat st;

		snprintf(ret_paths[count], STATE_PATH_MAX, "%s%u%s", parts[i][0],
			 (unsigned)geteuid(), parts[i][1]);
		if (lstat(ret_paths[count], &st) == 0 && S_ISDIR(st.st_mode) &&
		    st.st_uid == geteuid() && !is_listed(ret_paths, count, &st))
			count++;
	}
	return count;
}

bool state_name_is_good(const char *name)
{
	size_t len = strlen(name);

	return len > 0 && len <= STATE_NAME_MAX && name[0] != '.' && name[0] != '-' &&
	       strcmp(name, STATE_GANGS) != 0 && strcmp(name, STATE_TURNS) != 0 &&
	       strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
			    "0123456789._-") == len;
}
