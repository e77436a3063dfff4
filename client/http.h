/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * http.h - the least of HTTP/1.1 that a scrape needs: one request without a body, one answer, and the end of
 * the connection. Pure.
 */
#ifndef HPZ_HTTP_H
#define HPZ_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "util.h"

#define HTTP_REQUEST_MAX 8192 /* bytes; more is refused */

struct http_request {
	bool is_head;       /* as GET, without what it is about */
	bool wants_metrics; /* OpenMetrics, not the older format */
};

/* What has come so far. 0: more is to come; else the status of the answer, with 200 for a scrape. */
int http_parse(const char *bytes, size_t length, struct http_request *ret_request);

#define HTTP_HEAD_MAX 512
/* Head of an answer, with its empty line; `type` and `length` are of the body. Returns its length. */
size_t http_format_head(char head[HTTP_HEAD_MAX], int status, const char *type, size_t length);

/* "Not Found": also the body of an answer that is none of metrics. */
const char *http_get_reason(int status);

#endif
