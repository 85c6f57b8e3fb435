/*
 * The claim's name is written first and removed last, so that everything that a claim has can
 * be found. The CDI device is written after all that it mounts, and removed before it. If the
 * process is killed on any line, the kubelet asks again to prepare the claim, or to undo that.
 *
 * After a restart of the kubelet, it asks again for the claims of all pods, even while the API
 * server is away. So the server's answer is kept on the disk. The kept answer counts only while
 * the server does not answer. A claim that was deleted or allocated again is noticed when the
 * server answers.
 *
 * Several shares of one GPU in a claim become one share with the sum of their limits. A GPU
 * without a file in the policy is refused to the container, whatever devices the container
 * sees.
 */
#include "prepare.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "claim_fetch.h"
#include "directory.h"
#include "gone.h"
#include "library.h"
#include "resource_slice.h"
#include "slice.h"
#include "spec.h"

#define VISIBLE      "NVIDIA_VISIBLE_DEVICES="
#define VISIBLE_LEN  (sizeof(VISIBLE) + (size_t)VGPU_DEVICES_MAX * VGPU_UUID_LEN)
#define KEPT_MAX     ((size_t)1024 * 1024) /* bytes of a kept answer */
#define SLICE_SHARED "shared"
#define FILES_MAX    4096 /* files that are removed for one call of the kubelet */

/* Checks the path of vgpud's socket. Containers get its directory mounted, and the library
 * looks there for a fixed name. */
static int check_socket(const char *path, struct fault *fault)
{
	const char *slash = strrchr(path, '/');

	if (path[0] == '/' && slash > path && strcmp(slash + 1, SLICE_SOCKET_NAME) == 0)
		return 0;
	return fault_set(
		fault, -EINVAL,
		"VGPU_SOCKET is %.300s, but containers look for a socket called " SLICE_SOCKET_NAME
		" in a directory of its own: set VGPU_SOCKET to such a path",
		path);
}

/* Makes the directories and the library's copy, which all claims need, where they are
 * missing. */
static int make_common_files(const struct prepare *prepare, struct fault *fault)
{
	int error = directory_make_all(prepare->places.claims, 0700, fault);

	if (!error)
		error = directory_make_all(prepare->places.containers.slices, 0755, fault);
	return error ? error : library_keep(prepare->state, &prepare->library_data, fault);
}

int prepare_open(struct prepare *prepare, const char *state, const char *regions, const char *cdi,
		 const char *library, struct fault *fault)
{
	int error = claims_find_places(state, regions, &prepare->places, fault);

	if (error)
		return error;
	if (cdi[0] != '/' || strlen(cdi) > CONTAINER_DIR_LEN - 32)
		return fault_set(fault, -EINVAL, "%.300s is no absolute path, or too long", cdi);
	snprintf(prepare->places.containers.specs, CONTAINER_DIR_LEN, "%s", cdi);
	prepare->state = state;
	snprintf(prepare->library, sizeof(prepare->library), "%s/" LIBRARY_NAME, state);
	error = check_socket(slice_socket_path(), fault);
	if (!error)
		error = library_read(library, "--library", &prepare->library_data, fault);
	return error ? error : make_common_files(prepare, fault);
}

void prepare_close(struct prepare *prepare)
{
	bytes_free(&prepare->library_data);
}

/* Whether path was removed and cannot be made again, as it is in a mounted directory that was
 * removed. */
static bool is_lost(const char *path)
{
	struct stat st;

	return directory_make_all(path, 0755, NULL) == -ENOENT ||
	       (stat(path, &st) == 0 && st.st_nlink == 0);
}

bool prepare_is_lost(const struct prepare *prepare)
{
	return is_lost(prepare->state) || is_lost(prepare->places.containers.slices) ||
	       is_lost(prepare->places.containers.specs);
}

/* -- the API server's answer for a claim ------------------------------------------------------- */

static void kept_path(const struct prepare *prepare, const struct claim_id *id,
		      char ret_path[PATH_MAX])
{
	snprintf(ret_path, PATH_MAX, "%s/%s.json", prepare->places.claims, id->uid);
}

/* Reads the kept answer for the claim. Returns false if there is none. */
static bool read_kept(const struct prepare *prepare, const struct claim_id *id,
		      struct bytes *ret_text)
{
	char path[PATH_MAX], buf[4096];
	size_t len;
	FILE *file;

	kept_path(prepare, id, path);
	file = fopen(path, "re");
	if (!file)
		return false;
	while ((len = fread(buf, 1, sizeof(buf), file)) > 0 && ret_text->len < KEPT_MAX)
		bytes_add(ret_text, buf, len);
	fclose(file);
	return ret_text->len > 0 && !ret_text->failed;
}

static int keep_answer(const struct prepare *prepare, const struct claim_id *id,
		       const struct bytes *text, struct fault *fault)
{
	char *excerpt = claim_excerpt((const char *)text->data, text->len, prepare->driver);
	char path[PATH_MAX];
	int error;

	kept_path(prepare, id, path);
	error = excerpt ? directory_write_file(path, excerpt, fault)
			: fault_set(fault, -ENOMEM, "there is no memory for a claim");
	free(excerpt);
	return error;
}

/* Reads the claim from the API server, or from the kept answer if the server does not answer.
 * ret_text is the text that it was read from. */
static int find_claim(const struct prepare *prepare, const struct claim_id *id,
		      struct claim *ret_claim, struct bytes *ret_text, struct fault *fault)
{
	int error = claim_fetch(prepare->server, id, ret_text, fault);

	if (error == -EIO) {
		bytes_clear(ret_text);
		error = read_kept(prepare, id, ret_text) ? 0 : -EIO;
	}
	return error ? error
		     : claim_parse((const char *)ret_text->data, ret_text->len, id, prepare->driver,
				   ret_claim, fault);
}

static int write_name(const struct prepare *prepare, const struct claim_id *id, struct fault *fault)
{
	char name[CLAIMS_NAME_LEN];

	snprintf(name, sizeof(name), "%s/%s", id->namespace, id->name);
	return claims_name_write(&prepare->places, id->uid, name, fault);
}

/* -- its slice --------------------------------------------------------------------------------- */

/* The sum of two limits, at most max. 0 means "all", and makes the sum 0. */
static uint64_t add_limits(uint64_t one, uint64_t other, uint64_t max)
{
	if (one == 0 || other == 0)
		return 0;
	return one < max - other ? one + other : max;
}

static void add_share(struct policy *policy, const struct gpu *gpu,
		      const struct claim_device *share)
{
	int at = policy_find(policy, gpu->uuid);
	struct policy_device *device = &policy->device[at < 0 ? (int)policy->device_count : at];

	if (at < 0) {
		policy->device_count++;
		memcpy(device->uuid, gpu->uuid, sizeof(device->uuid));
		device->memory_bytes = share->memory_bytes;
		device->cores_pct = share->cores_pct;
		return;
	}
	device->memory_bytes = add_limits(device->memory_bytes, share->memory_bytes, INT64_MAX);
	device->cores_pct = (unsigned)add_limits(device->cores_pct, share->cores_pct, 100);
}

static int make_policy(const struct prepare *prepare, const struct claim *claim,
		       struct policy *policy, struct fault *fault)
{
	memset(policy, 0, sizeof(*policy));
	for (unsigned i = 0; i < claim->count; i++) {
		const struct claim_device *device = &claim->device[i];
		const struct gpu *gpu = resource_slice_find(prepare->gpus, device->device);

		if (strcmp(device->pool, prepare->node) != 0 || !gpu)
			return fault_set(fault, -ENODEV,
					 "there is no device %s of the pool %.150s on this node, "
					 "which vgpu-dra knows as %.150s: if the node has another "
					 "name, correct --node",
					 device->device, device->pool, prepare->node);
		add_share(policy, gpu, device);
	}
	return 0;
}

/* Writes NVIDIA_VISIBLE_DEVICES with the claim's own GPUs. The pod's image may name all GPUs to
 * NVIDIA's runtime, and this value replaces that. */
static void make_visible(const struct prepare *prepare, const struct policy *policy,
			 char ret_text[VISIBLE_LEN])
{
	size_t len = (size_t)snprintf(ret_text, VISIBLE_LEN, VISIBLE "%s",
				      prepare->cdi_kind ? "void" : "");

	for (unsigned i = 0; i < policy->device_count && !prepare->cdi_kind; i++)
		len += (size_t)snprintf(ret_text + len, VISIBLE_LEN - len, "%s%.*s", i ? "," : "",
					VGPU_UUID_LEN - 1, policy->device[i].uuid);
}

/* Makes the socket's directory for each claim, as a runtime refuses a container whose mount is
 * missing. vgpud may not have started yet, and /run is empty after the node starts again. */
static int make_socket_directory(const char *socket, struct fault *fault)
{
	char dir[CONTAINER_DIR_LEN];

	snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(socket, '/') - socket), socket);
	return directory_make_all(dir, 0755, fault);
}

static int make_slice(const struct prepare *prepare, const struct claim_id *id,
		      const struct policy *policy, struct fault *fault)
{
	char name[CLAIMS_SLICE_LEN], visible[VISIBLE_LEN], path[PATH_MAX], *text = NULL;
	const struct container_slice slice = {
		.name = name,
		.policy = policy,
		.library = prepare->library,
		.turns = prepare->turns,
		.socket = slice_socket_path(),
		.environment = visible,
	};
	int error;

	claims_slice_name(id->uid, name);
	make_visible(prepare, policy, visible);
	error = make_socket_directory(slice.socket, fault);
	if (!error)
		error = container_make(&prepare->places.containers, &slice, fault);
	if (!error)
		error = container_spec_text(&prepare->places.containers, &slice, &text, fault);
	container_spec_path(&prepare->places.containers, name, path);
	if (!error)
		error = container_spec_write(path, text, fault);
	free(text);
	return error;
}

/* -- the claim --------------------------------------------------------------------------------- */

int prepare_claim(const struct prepare *prepare, const struct claim_id *id, struct claim *ret_claim,
		  struct fault *fault)
{
	struct policy *policy = malloc(sizeof(*policy));
	struct bytes text = {0};
	int error = policy ? find_claim(prepare, id, ret_claim, &text, fault)
			   : fault_set(fault, -ENOMEM, "there is no memory for a claim");

	if (!error)
		error = make_policy(prepare, ret_claim, policy, fault);
	if (!error)
		error = make_common_files(prepare, fault);
	if (!error)
		error = write_name(prepare, id, fault);
	if (!error)
		error = make_slice(prepare, id, policy, fault);
	if (!error)
		error = keep_answer(prepare, id, &text, fault);
	bytes_free(&text);
	free(policy);
	return error;
}

/* Removes the files that the tenant has put into the region's directory. Returns whether none
 * is left. */
static bool remove_shared(const struct prepare *prepare, const char *name)
{
	char path[CONTAINER_DIR_LEN + CLAIMS_SLICE_LEN];
	unsigned budget = FILES_MAX;
	bool gone;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", prepare->places.containers.slices, name);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT;
	gone = gone_move(fd, SLICE_SHARED) && gone_remove(fd, &budget);
	close(fd);
	return gone;
}

static int remove_file(const char *path, struct fault *fault)
{
	return unlink(path) == 0 || errno == ENOENT
		       ? 0
		       : fault_set(fault, -errno, "cannot remove %.300s: %s", path,
				   strerror(errno));
}

int prepare_undo(const struct prepare *prepare, const struct claim_id *id, struct fault *fault)
{
	char name[CLAIMS_SLICE_LEN], path[PATH_MAX];
	int error;

	claims_slice_name(id->uid, name);
	container_spec_path(&prepare->places.containers, name, path);
	error = remove_file(path, fault);
	if (!error && !remove_shared(prepare, name))
		error = fault_set(fault, -EAGAIN,
				  "%s has too many files in %.200s to remove at once: each call "
				  "removes more of them",
				  name, prepare->places.containers.slices);
	if (!error)
		error = container_remove(&prepare->places.containers, name, fault);
	if (error == -ENOENT)
		error = 0;
	kept_path(prepare, id, path);
	if (!error)
		error = remove_file(path, fault);
	return error ? error : claims_name_remove(&prepare->places, id->uid, fault);
}

void prepare_claim_cdi(const struct claim_id *id, char ret_name[PREPARE_ID_LEN])
{
	char name[CLAIMS_SLICE_LEN];

	claims_slice_name(id->uid, name);
	snprintf(ret_name, PREPARE_ID_LEN, CONTAINER_SPEC_KIND "=%s", name);
}

void prepare_gpu_cdi(const struct prepare *prepare, const struct claim_device *device,
		     char ret_name[PREPARE_ID_LEN])
{
	const struct gpu *gpu = resource_slice_find(prepare->gpus, device->device);

	*ret_name = '\0';
	if (prepare->cdi_kind && gpu)
		snprintf(ret_name, PREPARE_ID_LEN, "%s=%s", prepare->cdi_kind, gpu->uuid);
}
