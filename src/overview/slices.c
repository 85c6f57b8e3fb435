/*
 * The list is made from the names and owners of files and directories. No region is opened
 * here, so a damaged region does not keep a slice out of the list.
 *
 * Each add_… function appends the slices that an entry of a directory stands for, which may be
 * none. These functions, and each list_… function, return false only if there is no memory or no
 * free descriptor. A slice must not be missing for such a reason, because it would seem to have
 * ended.
 */
#include "slices.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "claims.h"
#include "container.h"
#include "env.h"
#include "size.h"
#include "slice.h"
#include "state_dir.h"

#define HAMI_DIR            SLICE_REGION_HAMI_DIR /* on the host, as in its containers */
#define CONTAINERS          "containers"
#define KUBERNETES_POLICIES "/var/lib/vgpu/kubernetes" /* as vgpu-device-plugin makes them */
#define KUBERNETES_REGIONS  "/run/vgpu-kubernetes"
#define REGION_ENDING       ".cache"
#define RUN_USERS_DIR       "/run/user"
#define TMP_DIR             "/tmp"
#define TMP_STATE_NAME      "vgpu-" /* with the user's number: state_dir.c */

/* -- the list ---------------------------------------------------------------------------------- */

static void free_one(struct slices_one *one)
{
	free(one->name);
	free(one->region_path);
	free(one->policy_path);
	free(one->state_path);
	if (!one->shares_pods)
		free(one->pods);
}

void slices_free(struct slices *slices)
{
	for (unsigned i = 0; i < slices->count; i++)
		free_one(&slices->one[i]);
	free(slices->one);
	*slices = (struct slices){0, NULL};
}

/* Appends the slice, and takes over its strings. Frees them and returns false if there is no
 * memory, which includes that one of the strings is missing. */
static bool append(struct slices *slices, struct slices_one one)
{
	bool whole = one.name && one.region_path &&
		     (one.kind > SLICES_CONTAINER || (one.policy_path && one.state_path));
	struct slices_one *more =
		whole ? realloc(slices->one, (slices->count + 1) * sizeof(*more)) : NULL;

	if (!more) {
		free_one(&one);
		return false;
	}
	if (!one.holder_len)
		one.holder_len = strlen(one.name);
	slices->one = more;
	slices->one[slices->count++] = one;
	return true;
}

/* Returns "dir/name", which the caller frees; NULL: there is no memory. */
static char *joined(const char *dir, const char *name)
{
	char *path;

	return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

/* Calls visit for each entry of the directory that does not begin with ".". Stops when visit
 * returns false, and returns false then. A directory that cannot be read has no entry. */
static bool each_entry(const char *path,
		       bool (*visit)(struct slices *slices, const char *dir, const char *name),
		       struct slices *slices)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;
	bool going = true;

	if (!dir)
		return !fault_is_shortage(-errno);
	while (going && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			going = visit(slices, path, entry->d_name);
	closedir(dir);
	return going;
}

static bool is_directory(const char *path, struct stat *ret_st)
{
	return lstat(path, ret_st) == 0 && S_ISDIR(ret_st->st_mode);
}

/* -- slices of vgpu run ------------------------------------------------------------------------ */

static bool add_run(struct slices *slices, const char *dir, const char *name)
{
	char *path = joined(dir, name);
	struct slices_one one = {.kind = SLICES_RUN};
	struct stat st;

	if (!path)
		return false;
	if (!state_name_is_good(name) || !is_directory(path, &st)) {
		free(path);
		return true;
	}
	one.name = strdup(name);
	one.region_path = joined(path, STATE_REGION);
	one.policy_path = joined(path, STATE_POLICY);
	one.state_path = strdup(dir);
	one.owner = st.st_uid;
	one.group = st.st_gid;
	free(path);
	return append(slices, one);
}

/* Adds the slices of the user's state directory in dir/name, which is /run/user/NUMBER. */
static bool add_runtime(struct slices *slices, const char *dir, const char *name)
{
	char *user = joined(dir, name), *path = user ? joined(user, "vgpu") : NULL;
	bool going = path && each_entry(path, add_run, slices);

	free(path);
	free(user);
	return going;
}

/* Adds the slices of the state directory dir/name, if that is /tmp/vgpu-NUMBER. */
static bool add_temporary(struct slices *slices, const char *dir, const char *name)
{
	size_t prefix = strlen(TMP_STATE_NAME);
	char *path;
	bool going;

	if (strncmp(name, TMP_STATE_NAME, prefix) != 0 || !name[prefix] ||
	    name[prefix + strspn(name + prefix, "0123456789")])
		return true;
	path = joined(dir, name);
	going = path && each_entry(path, add_run, slices);
	free(path);
	return going;
}

static bool list_run(struct slices *slices)
{
	char own[STATE_OWN_MAX][STATE_PATH_MAX];
	unsigned count = state_own_paths(own);

	for (unsigned i = 0; i < count; i++)
		if (!each_entry(own[i], add_run, slices))
			return false;
	if (env_get("VGPU_STATE"))
		return true;
	if (geteuid() != 0)
		return each_entry(STATE_ROOT_DIR, add_run, slices);
	return each_entry(RUN_USERS_DIR, add_runtime, slices) &&
	       each_entry(TMP_DIR, add_temporary, slices);
}

/* -- slices of vgpu cdi ------------------------------------------------------------------------ */

struct containers {
	const struct container_places *places;
	struct slices *slices;
};

static int add_for_containers(void *arg, const char *name)
{
	const struct containers *containers = arg;
	struct slices_one one = {.kind = SLICES_CONTAINER};
	char region[PATH_MAX], policy[PATH_MAX], lock[PATH_MAX];
	struct stat st;

	container_policy_path(containers->places, name, policy);
	container_region_path(containers->places, name, region);
	container_lock_path(containers->places, name, lock);
	if (!is_directory(policy, &st) || access(lock, F_OK) < 0)
		return 0;
	one.name = strdup(name);
	one.region_path = strdup(region);
	one.policy_path = strdup(policy);
	one.state_path = strdup(containers->places->slices);
	one.owner = st.st_uid;
	one.group = st.st_gid;
	return append(containers->slices, one) ? 0 : -ENOMEM;
}

static bool list_containers(struct slices *slices)
{
	struct container_places places;
	struct containers containers = {&places, slices};

	return container_find_places(&places, NULL) ||
	       !fault_is_shortage(container_each(&places, add_for_containers, &containers));
}

/* -- slices of vgpu-device-plugin -------------------------------------------------------------- */

/* Returns the usual directory or, if VGPU_KUBERNETES is set, the directory `below` in its
 * value. The caller frees the path. NULL: there is no memory. */
static char *kubernetes_place(const char *usual, const char *below)
{
	const char *named = env_get("VGPU_KUBERNETES");

	return named ? joined(named, below) : strdup(usual);
}

/* Reads the file of the slice's pods. Returns NULL if there is no such file, or no memory. */
static struct pod_users *find_pods(const char *dir, const char *file)
{
	struct pod_users *pods = malloc(sizeof(*pods));

	if (pods && pod_read(dir, file, pods))
		return pods;
	free(pods);
	return NULL;
}

static bool add_of_kubernetes(struct slices *slices, const char *dir, const char *name)
{
	struct slices_one one = {.kind = SLICES_KUBERNETES};
	char *container = joined(dir, name), *region_dir = NULL, *regions;
	struct stat st = {.st_mode = 0};

	one.policy_path = container ? joined(container, "policy") : NULL;
	one.pods = container ? find_pods(container, POD_FILE) : NULL;
	free(container);
	if (!one.policy_path || !is_directory(one.policy_path, &st)) {
		bool going = one.policy_path != NULL;

		free_one(&one);
		return going;
	}
	regions = kubernetes_place(KUBERNETES_REGIONS, "regions");
	region_dir = regions ? joined(regions, name) : NULL;
	one.region_path = region_dir ? joined(region_dir, "region") : NULL;
	one.name = strdup(name);
	one.owner = st.st_uid;
	one.group = st.st_gid;
	free(regions);
	free(region_dir);
	return append(slices, one);
}

static bool list_kubernetes(struct slices *slices)
{
	char *policies = kubernetes_place(KUBERNETES_POLICIES, "policies");
	bool going = policies && each_entry(policies, add_of_kubernetes, slices);

	free(policies);
	return going;
}

/* -- slices of vgpu-dra ------------------------------------------------------------------------ */

struct claims {
	const struct claims_places *places;
	struct slices *slices;
};

static int add_claim(void *arg, const char *uid, const char *name)
{
	const struct claims *claims = arg;
	struct slices_one one = {.kind = SLICES_CLAIM};
	char slice[CLAIMS_SLICE_LEN], pods[CLAIMS_FILE_LEN], region[PATH_MAX], policy[PATH_MAX];
	struct stat st;

	claims_slice_name(uid, slice);
	claims_pods_file(uid, pods);
	container_policy_path(&claims->places->containers, slice, policy);
	container_region_path(&claims->places->containers, slice, region);
	if (!is_directory(policy, &st))
		return 0;
	one.name = strdup(name);
	one.region_path = strdup(region);
	one.policy_path = strdup(policy);
	one.pods = find_pods(claims->places->claims, pods);
	one.owner = st.st_uid;
	one.group = st.st_gid;
	return append(claims->slices, one) ? 0 : -ENOMEM;
}

static bool list_claims(struct slices *slices)
{
	char *state = kubernetes_place(CLAIMS_STATE, "dra");
	char *regions = kubernetes_place(CLAIMS_REGIONS, "dra/regions");
	struct claims_places places;
	struct claims claims = {&places, slices};
	bool going = state && regions;

	if (going && !claims_find_places(state, regions, &places, NULL))
		going = !fault_is_shortage(claims_each(&places, add_claim, &claims));
	free(state);
	free(regions);
	return going;
}

/* -- slices of HAMi ---------------------------------------------------------------------------- */

static bool is_region_name(const char *name)
{
	size_t len = strlen(name), ending = strlen(REGION_ENDING);

	return len > ending && strcmp(name + len - ending, REGION_ENDING) == 0;
}

static bool add_region(struct slices *slices, const char *dir, const char *name)
{
	struct slices_one one = {.kind = SLICES_HAMI};
	struct stat st;

	if (!is_region_name(name))
		return true;
	one.region_path = joined(dir, name);
	if (!one.region_path || lstat(one.region_path, &st) < 0 || !S_ISREG(st.st_mode)) {
		bool going = one.region_path != NULL;

		free_one(&one);
		return going;
	}
	one.owner = st.st_uid;
	one.name = joined(strrchr(dir, '/') + 1, name);
	one.holder_len = strlen(strrchr(dir, '/') + 1);
	return append(slices, one);
}

/* Adds the slices of a container. Its directory usually has one region, and the slice has the
 * container's name. After a restart with another GPU, the directory has several regions, and
 * each slice's name is the container's with "/" and the name of the file. */
static bool add_container(struct slices *slices, const char *dir, const char *name)
{
	char *path = joined(dir, name);
	unsigned first = slices->count;
	struct stat st;
	bool going = path && (!is_directory(path, &st) || each_entry(path, add_region, slices));

	free(path);
	if (going && slices->count == first + 1)
		slices->one[first].name[strlen(name)] = '\0';
	return going;
}

static bool list_hami(struct slices *slices)
{
	const char *named = env_get("VGPU_HAMI");
	char *path = joined(named ? named : HAMI_DIR, CONTAINERS);
	bool going = path && each_entry(path, add_container, slices);

	free(path);
	return going;
}

/* -- the whole list ---------------------------------------------------------------------------- */

/* Adds the region of that path as a slice without a known maker. */
static bool add_loose(struct slices *slices, const char *path)
{
	struct slices_one one = {.kind = SLICES_LOOSE};
	struct stat st;

	if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return true;
	one.name = strdup(path);
	one.region_path = strdup(path);
	one.owner = st.st_uid;
	return append(slices, one);
}

int slices_compare(const struct slices_one *left, const struct slices_one *right)
{
	int order = (int)left->kind - (int)right->kind;

	if (!order)
		order = strcmp(left->name, right->name);
	return order ? order : strcmp(left->region_path, right->region_path);
}

static int by_name(const void *left, const void *right)
{
	return slices_compare(left, right);
}

int slices_list(struct slices *ret_slices, struct fault *fault)
{
	*ret_slices = (struct slices){0, NULL};
	if (!list_run(ret_slices) || !list_containers(ret_slices) || !list_kubernetes(ret_slices) ||
	    !list_claims(ret_slices) || !list_hami(ret_slices) ||
	    !add_loose(ret_slices, SLICE_REGION_DEFAULT)) {
		slices_free(ret_slices);
		return fault_set(
			fault, -ENOMEM,
			"there is no memory or no free descriptor for a list of the slices");
	}
	if (ret_slices->count > 0)
		qsort(ret_slices->one, ret_slices->count, sizeof(*ret_slices->one), by_name);
	return 0;
}

bool slices_is_of_container(const struct slices_one *slice)
{
	return slice->kind != SLICES_RUN && slice->kind != SLICES_LOOSE;
}

bool slices_is_same_container(const struct slices_one *one, const struct slices_one *other)
{
	return slices_is_of_container(one) && one->kind == other->kind &&
	       one->holder_len == other->holder_len &&
	       strncmp(one->name, other->name, one->holder_len) == 0;
}

const char *slices_kind_name(enum slices_kind kind)
{
	static const char *const names[] = {"run",   "container", "kubernetes",
					    "claim", "hami",      "loose"};

	return names[kind];
}

/* -- finding a slice --------------------------------------------------------------------------- */

/* Finds the slice whose region is the file at that path. Adds it to the list if need be. */
static int find_path(struct slices *slices, const char *path, const struct slices_one **ret_one,
		     struct fault *fault)
{
	struct stat wanted, st;

	if (stat(path, &wanted) < 0)
		return fault_set(fault, -ENOENT, "the region %.300s cannot be looked at: %s", path,
				 strerror(errno));
	for (unsigned i = 0; i < slices->count; i++)
		if (stat(slices->one[i].region_path, &st) == 0 && st.st_dev == wanted.st_dev &&
		    st.st_ino == wanted.st_ino) {
			*ret_one = &slices->one[i];
			return 0;
		}
	if (!S_ISREG(wanted.st_mode))
		return fault_set(fault, -ENOENT, "%.300s is no region: it is not a file", path);
	if (!add_loose(slices, path))
		return fault_set(fault, -ENOMEM, "there is no memory for a list of the slices");
	*ret_one = &slices->one[slices->count - 1];
	return 0;
}

/* The slices that a name may mean. The pointers are to the last slice of each group. */
struct matches {
	const struct slices_one *start; /* its name starts with `name` */
	const struct slices_one *whole; /* its name is `name` */
	const struct slices_one *own;   /* its name is `name`, and this user owns it */
	unsigned start_count, whole_count, own_count;
	const char *name; /* the name that was looked for */
	uid_t owner;      /* only slices of this owner, or ANY_OWNER */
};

#define ANY_OWNER ((uid_t)-1)

static bool starts_with(const struct slices_one *one, const char *name, uid_t owner)
{
	return *name && strncmp(one->name, name, strlen(name)) == 0 &&
	       (owner == ANY_OWNER || one->owner == owner);
}

static struct matches match(const struct slices *slices, const char *name, uid_t owner)
{
	struct matches found = {.name = name, .owner = owner};

	for (unsigned i = 0; i < slices->count; i++) {
		const struct slices_one *one = &slices->one[i];

		if (!starts_with(one, name, owner))
			continue;
		found.start = one;
		found.start_count++;
		if (strcmp(one->name, name) != 0)
			continue;
		found.whole = one;
		found.whole_count++;
		if (one->owner == geteuid()) {
			found.own = one;
			found.own_count++;
		}
	}
	return found;
}

/* Returns the user with that name or number; ANY_OWNER: there is none. */
static uid_t find_user(const char *text)
{
	const struct passwd *user = getpwnam(text);
	uint64_t number;

	if (user)
		return user->pw_uid;
	return number_parse(text, UINT32_MAX - 1, &number) ? ANY_OWNER : (uid_t)number;
}

/* Finds NAME or USER/NAME in the list. Returns NULL if no slice, or more than one, is meant;
 * *ret_found has the candidates. Root may act on every slice, so its own slices have no
 * precedence. */
static const struct slices_one *find_name(const struct slices *slices, const char *name,
					  struct matches *ret_found)
{
	const char *slash = strchr(name, '/');
	char user[64];

	*ret_found = match(slices, name, ANY_OWNER);
	if (ret_found->start_count == 0 && slash && (size_t)(slash - name) < sizeof(user)) {
		uid_t owner;

		snprintf(user, sizeof(user), "%.*s", (int)(slash - name), name);
		owner = find_user(user);
		if (owner != ANY_OWNER)
			*ret_found = match(slices, slash + 1, owner);
	}
	if (ret_found->whole_count == 1)
		return ret_found->whole;
	if (ret_found->own_count == 1 && geteuid() != 0)
		return ret_found->own;
	return ret_found->whole_count == 0 && ret_found->start_count == 1 ? ret_found->start : NULL;
}

char *slices_user(const struct slices_one *one, char *buf, size_t len)
{
	const struct passwd *user = getpwuid(one->owner);

	if (user)
		snprintf(buf, len, "%s", user->pw_name);
	else
		snprintf(buf, len, "%u", (unsigned)one->owner);
	return buf;
}

char *slices_word(const struct slices *slices, const struct slices_one *one, char *buf, size_t len)
{
	struct matches found;
	char user[64];

	snprintf(buf, len, "%s", one->name);
	if (find_name(slices, buf, &found) == one)
		return buf;
	snprintf(buf, len, "%s/%s", slices_user(one, user, sizeof(user)), one->name);
	if (find_name(slices, buf, &found) != one)
		snprintf(buf, len, "%s", one->region_path);
	return buf;
}

/* Says that the name means several slices, and gives each one's text for slices_find. */
static int refuse_ambiguous(const struct slices *slices, const struct matches *found,
			    struct fault *fault)
{
	size_t at = 0;
	char words[320] = "", word[PATH_MAX];

	for (unsigned i = 0; i < slices->count && at < sizeof(words); i++) {
		const struct slices_one *one = &slices->one[i];

		if (!starts_with(one, found->name, found->owner) ||
		    (found->whole_count > 0 && strcmp(one->name, found->name) != 0))
			continue;
		slices_word(slices, one, word, sizeof(word));
		at += (size_t)snprintf(words + at, sizeof(words) - at, "%s%s", at ? ", " : "",
				       word);
	}
	if (at >= sizeof(words))
		memcpy(words + sizeof(words) - 4, "...", 4);
	return fault_set(fault, -ENOTUNIQ, "%u slices %s %.100s: write one of %s",
			 found->whole_count > 0 ? found->whole_count : found->start_count,
			 found->whole_count > 0 ? "are called" : "have a name that starts with",
			 found->name, words);
}

int slices_find(struct slices *slices, const char *name, const struct slices_one **ret_one,
		struct fault *fault)
{
	struct matches found;
	const struct slices_one *one = find_name(slices, name, &found);

	if (one) {
		*ret_one = one;
		return 0;
	}
	if (found.start_count > 0)
		return refuse_ambiguous(slices, &found, fault);
	if (strchr(name, '/'))
		return find_path(slices, name, ret_one, fault);
	return fault_set(fault, -ENOENT,
			 "there is no slice \"%.200s\" here: vgpu ps lists those there are", name);
}
