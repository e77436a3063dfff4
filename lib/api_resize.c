/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* api_resize.c - how large a pool is to be. */
#include "api.h"

static int api_call_resize(
	struct hpz *hpz, const struct hpz_resize_request *request, struct hpz_wire_resized *ret_resized)
{
	_cleanup_api_reply_ struct api_reply reply = {0};
	struct hpz_wire_resize wire = {
		.size = sizeof(wire),
		.flags = request->flags,
		.kind = request->kind,
		.pages = request->pages,
		.bytes = request->size,
		.timeout_ms = request->timeout_ms,
	};
	const char *why;

	if (!request->pool || !*request->pool || strlen(request->pool) > sizeof(wire.pool))
		return api_fail(hpz, HPZ_ERR_NO_POOL, "no pool can have this name");
	memcpy(wire.pool, request->pool, strlen(request->pool));
	int error = proto_check_resize(&wire, &why);
	if (error)
		return api_fail(hpz, error, "%s", why);
	error = api_call(hpz, HPZ_OP_RESIZE, &wire, sizeof(wire),
		wire.flags & HPZ_RESIZE_WAIT || wire.kind == HPZ_RESIZE_DEMOTE ? wire.timeout_ms : 0, &reply);
	if (error)
		return error;
	if (!api_read(&reply.payload, ret_resized, sizeof(*ret_resized)) || ret_resized->done > 1 ||
		reply.payload.left)
		return api_fail_protocol(hpz, "a malformed answer to resize");
	return HPZ_OK;
}

int hpz_resize(struct hpz *hpz, const struct hpz_resize_request *request, struct hpz_resize_result *result)
{
	struct hpz_resize_request known;
	struct hpz_wire_resized resized;

	int error = api_begin_call(hpz);
	if (error)
		return error;
	error = api_get_struct(request, &known, sizeof(known), sizeof(known));
	if (error)
		return api_fail(hpz, error, "the request is NULL, or its struct_size is not one we know");
	error = api_call_resize(hpz, &known, &resized);
	if (error || !result)
		return error;
	struct hpz_resize_result ours = {
		.page_size = resized.page_size,
		.before = resized.before,
		.target = resized.target,
		.configured = resized.configured,
		.total = resized.total,
		.grow = resized.grow,
		.shrink = resized.shrink,
		.give_back = resized.give_back,
		.demoted = resized.demoted,
		.done = resized.done,
	};
	return api_put_struct(result, &ours, sizeof(ours));
}
