/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* http.c - the least of HTTP/1.1 that a scrape needs. */
#include "http.h"

#include <stdio.h>
#include <strings.h>

#define HTTP_OPENMETRICS "application/openmetrics-text"

/* A part of what has come; not ended by NUL. */
struct http_text {
	const char *at;
	size_t length;
};

static bool http_is(struct http_text text, const char *word)
{
	return text.length == strlen(word) && memcmp(text.at, word, text.length) == 0;
}

/* Up to the next `end`, which is skipped. false: there is none. */
static bool http_take(struct http_text *text, char end, struct http_text *ret_part)
{
	const char *found = memchr(text->at, end, text->length);

	if (!found)
		return false;
	*ret_part = (struct http_text){text->at, (size_t)(found - text->at)};
	text->length -= ret_part->length + 1;
	text->at = found + 1;
	return true;
}

/* A line without its end; clients of old end lines with LF alone. */
static bool http_take_line(struct http_text *text, struct http_text *ret_line)
{
	if (!http_take(text, '\n', ret_line))
		return false;
	if (ret_line->length && ret_line->at[ret_line->length - 1] == '\r')
		ret_line->length--;
	return true;
}

/* Everything up to the empty line has come. */
static bool http_is_whole(struct http_text text)
{
	struct http_text line;

	while (http_take_line(&text, &line)) {
		if (!line.length)
			return true;
	}
	return false;
}

static bool http_has_control(struct http_text text)
{
	for (size_t i = 0; i < text.length; i++) {
		if ((unsigned char)text.at[i] < ' ' || text.at[i] == 0x7f)
			return true;
	}
	return false;
}

/* "GET /metrics HTTP/1.1" */
static int http_parse_first(struct http_text line, struct http_request *request)
{
	struct http_text method, target, path;

	if (http_has_control(line) || !http_take(&line, ' ', &method) || !http_take(&line, ' ', &target) ||
		!method.length || !target.length || line.length != strlen("HTTP/1.1") ||
		memcmp(line.at, "HTTP/", 5) != 0)
		return 400;
	if (!http_is(line, "HTTP/1.1") && !http_is(line, "HTTP/1.0"))
		return 505;
	request->is_head = http_is(method, "HEAD");
	if (!request->is_head && !http_is(method, "GET"))
		return 405;
	if (!http_take(&target, '?', &path))
		path = target;
	return http_is(path, "/metrics") ? 200 : 404;
}

/* "Accept: application/openmetrics-text;version=1.0.0,*;q=0.5": whoever names it can read it. */
static int http_parse_field(struct http_text line, struct http_request *request)
{
	struct http_text name;

	if (!http_take(&line, ':', &name) || !name.length || memchr(name.at, ' ', name.length) ||
		http_has_control(name))
		return 400;
	if (name.length == 6 && strncasecmp(name.at, "Accept", 6) == 0)
		request->wants_metrics |=
			memmem(line.at, line.length, HTTP_OPENMETRICS, strlen(HTTP_OPENMETRICS)) != NULL;
	return 0;
}

int http_parse(const char *bytes, size_t length, struct http_request *ret_request)
{
	struct http_text text = {bytes, length}, line = {0};

	*ret_request = (struct http_request){0};
	if (!http_is_whole(text))
		return length < HTTP_REQUEST_MAX ? 0 : 431;
	http_take_line(&text, &line);
	int status = http_parse_first(line, ret_request);
	while (http_take_line(&text, &line) && line.length) {
		if (http_parse_field(line, ret_request))
			return 400;
	}
	return status;
}

const char *http_get_reason(int status)
{
	static const struct {
		int status;
		const char *reason;
	} rows[] = {{200, "OK"}, {400, "Bad Request"}, {404, "Not Found"}, {405, "Method Not Allowed"},
		{408, "Request Timeout"}, {431, "Request Header Fields Too Large"},
		{505, "HTTP Version Not Supported"}};
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].status == status)
			return rows[i].reason;
	}
	return "Internal Server Error";
}

size_t http_format_head(char head[HTTP_HEAD_MAX], int status, const char *type, size_t length)
{
	return (size_t)snprintf(head, HTTP_HEAD_MAX,
		"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%sConnection: close\r\n\r\n",
		status, http_get_reason(status), type, length, status == 405 ? "Allow: GET, HEAD\r\n" : "");
}
