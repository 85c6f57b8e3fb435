/* Pods by control groups: the paths of runtimes, those that tenants make, and the names of links.
 */
#include <stdlib.h>
#include <string.h>

#include "pod_cgroup.h"
#include "unit.h"

#define UID    "6f1c3a2e-5b11-4f0e-9a47-2f6f1d0c8e55"
#define UID_   "6f1c3a2e_5b11_4f0e_9a47_2f6f1d0c8e55"
#define OTHER  "00000000-5b11-4f0e-9a47-2f6f1d0c8e55"
#define STATIC "0123456789abcdef0123456789abcdef"
#define ID     "cafe0123456789abcdef0123456789abcdef0123456789abcdef012345678900"
#define ID2    "beef0123456789abcdef0123456789abcdef0123456789abcdef012345678900"
#define SLICE  "kubepods-burstable-pod" UID_ ".slice"

/* Parses a copy without room after it, so that AddressSanitizer sees what reads on. */
static bool parse(const char *text, struct pod_cgroup *ret_group)
{
	char *copy = strdup(text);
	bool found = pod_cgroup_parse(copy, ret_group);

	free(copy);
	return found;
}

static void check_group(const char *text, const char *uid, const char *id)
{
	struct pod_cgroup group;

	memset(&group, '?', sizeof(group));
	if (!parse(text, &group))
		fail_msg("no pod in %s", text);
	assert_string_equal(group.uid, uid);
	assert_string_equal(group.id, id);
}

UNIT_TEST_ALONE(test_the_paths_of_runtimes)
{
	check_group("0::/kubepods/burstable/pod" UID "/" ID "\n", UID, ID);
	check_group("0::/kubepods/pod" UID "/crio-" ID "\n", UID, ID);
	check_group("0::/kubepods.slice/kubepods-burstable.slice/" SLICE "/cri-containerd-" ID
		    ".scope\n",
		    UID, ID);
	check_group("0::/kubepods.slice/kubepods-pod" UID_ ".slice/docker-" ID ".scope", UID, ID);
	check_group("0::/a.slice/a-kubepods.slice/a-" SLICE "/crio-" ID ".scope/container\n", UID,
		    ID);
	check_group("0::/kubepods/besteffort/pod" STATIC "/" ID "\n", STATIC, ID);
	check_group("0::/kubepods.slice/kubepods-pod" STATIC ".slice/docker-" ID ".scope", STATIC,
		    ID);
	check_group("0::/kubepods.slice/a-pod-pod" STATIC ".slice/crio-" ID ".scope\n", STATIC, ID);
	check_group("0::/../../" SLICE "/cri-containerd-" ID ".scope\n", UID, ID); /* from a pod */
	check_group("9:name=systemd:/\n4:cpu,cpuacct:/kubepods/pod" UID "/" ID "\n0::/\n", UID, ID);
}

UNIT_TEST_ALONE(test_a_pod_without_a_container)
{
	check_group("0::/kubepods/pod" UID "\n", UID, "");
	check_group("0::/kubepods/pod" UID, UID, "");
	check_group("0::/kubepods/pod" UID "/", UID, "");
	check_group("0::/kubepods/pod" UID "\n0::/" ID "\n", UID, "");
	check_group("0::/kubepods/pod" UID "/x" ID "\n", UID, "");
	check_group("0::/kubepods/pod" UID "/" ID "0\n", UID, "");
	check_group("0::/kubepods/pod" UID "/" ID " (deleted)\n", UID, "");
	check_group("0::/kubepods/pod" UID "/.scope\n", UID, "");
}

UNIT_TEST_ALONE(test_no_pod)
{
	static const char *const texts[] = {
		"",
		"\n",
		"0::/",
		"0::/user.slice/user-0.slice/session-1.scope\n",
		"0::/pod\n",
		"0::/docker/" ID "\n",
		"0::/kubepods/xpod" UID "/" ID "\n",
		"0::/kubepods/pod-" UID "/" ID "\n",
		"0::/kubepods/pod" UID "0/" ID "\n",
		"0::/kubepods/pod\n" UID "/" ID "\n",
		"0::/kubepods/pod6F1C3A2E-5B11-4F0E-9A47-2F6F1D0C8E55/" ID "\n",
		"0::/kubepods/pod\033[2J2e-5b11-4f0e-9a47-2f6f1d0c8e55/" ID "\n",
		"1:name=pod" UID ":/" ID "\n",
		"pod" UID "/" ID "\n",
	};
	struct pod_cgroup group, before;

	memset(&before, '?', sizeof(before));
	for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		group = before;
		if (parse(texts[i], &group))
			fail_msg("a pod in %s", texts[i]);
		assert_memory_equal(&group, &before, sizeof(group));
	}
}

/* A tenant can make control groups below its own, and call them as it likes. */
UNIT_TEST_ALONE(test_what_a_tenant_makes)
{
	check_group("0::/kubepods/pod" UID "/" ID "/kubepods/pod" OTHER "/" ID2 "\n", UID, ID);
	check_group("0::/kubepods.slice/" SLICE "/cri-containerd-" ID ".scope/pod" OTHER
		    "/crio-" ID2 ".scope\n",
		    UID, ID);
	check_group("0::/kubepods/pod" UID "/odd/" ID2 "\n", UID, "");
	check_group("0::/kubepods/pod" UID "/pod" OTHER "/" ID2 "\n", UID, "");
}

/* Whatever of the text is missing or another byte, what is found has the form of IDs. */
UNIT_TEST_ALONE(test_any_byte)
{
	static const char whole[] = "1:cpu:/kubepods.slice/" SLICE "/cri-containerd-" ID ".scope\n";
	static const char bytes[] = {'\0', '/', '-', '_', ':', '\n', 'g', '.', '\033', '\377'};
	struct pod_cgroup group;
	char text[sizeof(whole)];

	for (size_t at = 0; at < sizeof(whole); at++)
		for (size_t i = 0; i < sizeof(bytes); i++) {
			memcpy(text, whole, sizeof(whole));
			text[at] = bytes[i];
			if (at == sizeof(whole) - 1 || !parse(text, &group))
				continue;
			assert_true(pod_is_uid(group.uid, strlen(group.uid)));
			assert_true(strspn(group.id, "0123456789abcdef") == strlen(group.id));
			assert_true(strlen(group.id) == POD_CGROUP_ID_LEN || !*group.id);
		}
}

UNIT_TEST_ALONE(test_links)
{
	static const char *const others[] = {
		"",
		"-",
		".log",
		"-" ID ".log",
		"train-0_lab_main-" ID2 ".log",
		"train-0_lab_main-" ID ".log.1",
		"train-0_lab_main-" ID,
		"train-0_lab_main" ID ".log",
		"train-0_lab-" ID ".log",
		"train-0-" ID ".log",
		"_lab_main-" ID ".log",
		"train-0__main-" ID ".log",
		"train-0_lab_-" ID ".log",
		"train-0_lab_a_b-" ID ".log",
		"Train_lab_main-" ID ".log",
		"a b_lab_main-" ID ".log",
		"\033[2J_lab_main-" ID ".log",
		"a/b_lab_main-" ID ".log",
		"train-0_0123456789012345678901234567890123456789012345678901234567890123_main-" ID
		".log",
	};
	struct pod_names names;
	char *copy;

	assert_true(pod_cgroup_read_link("train-0_lab_main-" ID ".log", ID, &names));
	assert_string_equal(names.pod, "train-0");
	assert_string_equal(names.name_space, "lab");
	assert_string_equal(names.container, "main");
	assert_true(pod_cgroup_read_link("x.y_a_c-" ID2 "-" ID ".log", ID, &names) == false);
	assert_true(pod_cgroup_read_link("x.y_a-b_c-d-" ID ".log", ID, &names));
	assert_string_equal(names.pod, "x.y");
	assert_string_equal(names.name_space, "a-b");
	assert_string_equal(names.container, "c-d");
	for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		copy = strdup(others[i]);
		if (pod_cgroup_read_link(copy, ID, &names))
			fail_msg("names in %s", others[i]);
		free(copy);
	}
}

UNIT_TEST_ALONE(test_users)
{
	struct pod_users users = {.count = 0};
	char line[POD_LINE_LEN];

	pod_add(&users, &(struct pod_names){"lab", "train-0", "main"});
	pod_add_uid(&users, UID);
	pod_add_uid(&users, UID);
	pod_add_uid(&users, "");
	pod_add_uid(&users, "../../x");
	assert_int_equal(users.count, 2);
	assert_string_equal(pod_line(&users.user[0], line), UID);
	assert_string_equal(pod_line(&users.user[1], line), "lab/train-0/main");
}
