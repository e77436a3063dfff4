/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_http.c - requests of a scrape, and what is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "http.h"

static const struct {
	const char *text;
	int status;
	bool is_head, wants_metrics;
} rows[] = {
	{"GET /metrics HTTP/1.1\r\n\r\n", 200, false, false},
	{"GET /metrics HTTP/1.0\n\n", 200, false, false},
	{"HEAD /metrics HTTP/1.1\r\nHost: h\r\n\r\n", 200, true, false},
	{"GET /metrics?x=%00 HTTP/1.1\r\nAccept: "
	 "application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n\r\n",
		200, false, true},
	{"GET /metrics HTTP/1.1\r\naccept:application/openmetrics-text\r\n\r\nmore", 200, false, true},
	{"GET /metrics HTTP/1.1\r\nX-Accept: application/openmetrics-text\r\n\r\n", 200, false, false},
	{"GET / HTTP/1.1\r\n\r\n", 404, false, false},
	{"GET /metrics/ HTTP/1.1\r\n\r\n", 404, false, false},
	{"GET /../metrics HTTP/1.1\r\n\r\n", 404, false, false},
	{"POST /metrics HTTP/1.1\r\n\r\n", 405, false, false},
	{"get /metrics HTTP/1.1\r\n\r\n", 405, false, false},
	{"GET /metrics HTTP/2.0\r\n\r\n", 505, false, false},
	{"GET /metrics HTTP/1.1 \r\n\r\n", 400, false, false},
	{"GET /metrics\r\n\r\n", 400, false, false},
	{"GET  HTTP/1.1\r\n\r\n", 400, false, false},
	{" /metrics HTTP/1.1\r\n\r\n", 400, false, false},
	{"GET /metrics\x1b[2J HTTP/1.1\r\n\r\n", 400, false, false},
	{"GET /metrics HTTP/1.1\r\nno field\r\n\r\n", 400, false, false},
	{"GET /metrics HTTP/1.1\r\n: empty\r\n\r\n", 400, false, false},
	{"GET /metrics HTTP/1.1\r\nA b: c\r\n\r\n", 400, false, false},
	{"\r\n\r\n", 400, false, false},
	{"", 0, false, false},
	{"GET /metrics HTTP/1.1\r\n", 0, false, false},
	{"GET /metrics HTTP/1.1\r\nHost: h\r\n", 0, false, false},
	{"\x16\x03\x01\x02", 0, false, false},
};

static void test_requests(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_request request;
		int status = http_parse(rows[i].text, strlen(rows[i].text), &request);
		if (status != rows[i].status)
			fail_msg("%s: %d", rows[i].text, status);
		if (status != 200)
			continue;
		assert_int_equal(request.is_head, rows[i].is_head);
		assert_int_equal(request.wants_metrics, rows[i].wants_metrics);
	}
}

/* Byte by byte it is the same, and before its end nothing is decided. */
static void test_pieces(void **state)
{
	static const char text[] = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n";
	struct http_request request;

	for (size_t length = 0; length < strlen(text); length++)
		assert_int_equal(http_parse(text, length, &request), 0);
	assert_int_equal(http_parse(text, strlen(text), &request), 200);
	assert_true(request.wants_metrics);
}

static void test_too_long(void **state)
{
	static char text[HTTP_REQUEST_MAX];
	struct http_request request;

	memset(text, 'a', sizeof(text));
	assert_int_equal(http_parse(text, sizeof(text) - 1, &request), 0);
	assert_int_equal(http_parse(text, sizeof(text), &request), 431);
	/* NUL bytes are bytes. */
	memset(text, '\0', sizeof(text));
	assert_int_equal(http_parse(text, sizeof(text), &request), 431);
}

static void test_head(void **state)
{
	char head[HTTP_HEAD_MAX];

	size_t length = http_format_head(head, 200, "text/plain", 7);
	assert_string_equal(head, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 7\r\n"
				  "Connection: close\r\n\r\n");
	assert_int_equal(length, strlen(head));
	http_format_head(head, 405, "text/plain", 0);
	assert_non_null(strstr(head, "\r\nAllow: GET, HEAD\r\n"));
	assert_string_equal(http_get_reason(500), "Internal Server Error");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_head),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
