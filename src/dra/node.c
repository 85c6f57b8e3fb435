/*
 * A driver with another node's name would publish this machine's GPUs as that node's, and the
 * drivers of both nodes would replace each other's ResourceSlice. The kernel makes a boot ID at
 * each start, which the kubelet writes to its node's status. The boot ID distinguishes the
 * machines:
 *
 *   {"metadata": {"uid": …}, "status": {"nodeInfo": {"bootID": …}}, …}
 *
 * After a restart of the machine, the status has the former ID until the kubelet has written
 * the new one: the caller tries again.
 */
#include "node.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "boot.h"
#include "json.h"

#define CURE "write --node, or NODE_NAME, with the name that kubectl get nodes has for this machine"

/* Compares the node's boot ID with this machine's. If either is unknown, it counts as the
 * same. */
static int check_machine(struct json_object *node, const char *name, struct fault *fault)
{
	const char *there = json_text_at(node, "status.nodeInfo.bootID");
	char here[BOOT_LEN];

	boot_read(here);
	if (!there || !*there || !*here || strcmp(there, here) == 0)
		return 0;
	return fault_set(fault, -EXDEV,
			 "the node %.150s is another machine, or its kubelet has not started yet: "
			 "its boot ID is %.40s, and this machine's is %s: " CURE,
			 name, there, here);
}

static int read_node(struct json_object *node, const char *name, char ret_uid[NODE_UID_LEN],
		     struct fault *fault)
{
	const char *uid = json_text_at(node, "metadata.uid");
	int error = uid ? check_machine(node, name, fault)
			: fault_set(fault, -EBADMSG,
				    "the API server's answer is not the node %.150s", name);

	if (!error)
		snprintf(ret_uid, NODE_UID_LEN, "%s", uid);
	return error;
}

int node_find(struct api_server *server, const char *name, char ret_uid[NODE_UID_LEN],
	      struct fault *fault)
{
	struct json_object *node = NULL;
	struct bytes answer = {0};
	char path[512];
	int status, error;

	snprintf(path, sizeof(path), "/api/v1/nodes/%s", name);
	status = api_server_ask(server, "GET", path, NULL, &answer, fault);
	if (status == API_OK)
		node = json_read((const char *)answer.data, answer.len);
	if (status == API_OK)
		error = read_node(node, name, ret_uid, fault);
	else if (status == API_NOT_FOUND)
		error = fault_set(fault, -ENOENT, "the API server has no node %.150s: " CURE, name);
	else
		error = status < 0 ? status
				   : api_server_refused("GET", path, status, &answer, -EIO, fault);
	json_object_put(node);
	bytes_free(&answer);
	return error;
}
