/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* size.c - sizes as people write and read them. Pure. */
#include "size.h"

#include "util.h"

static const char size_units[] = "KMGT";

/* Reads decimal digits at *text and moves it past them; -EINVAL if there are none. */
static int size_parse_digits(const char **text, uint64_t *ret_value)
{
	uint64_t value = 0;
	const char *at = *text;

	for (; *at >= '0' && *at <= '9'; at++) {
		if (__builtin_mul_overflow(value, 10u, &value) ||
			__builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
			return -ERANGE;
	}
	if (at == *text)
		return -EINVAL;
	*text = at;
	*ret_value = value;
	return 0;
}

/* Reads "", "B", "K", "KiB" and so on up to the end of the text. */
static int size_parse_unit(const char *text, uint64_t *ret_unit)
{
	uint64_t unit = 1;

	for (unsigned i = 0; size_units[i] && unit == 1; i++) {
		if (*text == size_units[i] || *text == size_units[i] + ('a' - 'A'))
			unit = 1024ull << (10 * i);
	}
	const char *rest = unit > 1 ? text + 1 : text;
	if (*rest && strcmp(rest, unit > 1 ? "iB" : "B") != 0)
		return -EINVAL;
	*ret_unit = unit;
	return 0;
}

int size_parse(const char *text, uint64_t *ret_bytes)
{
	uint64_t whole, fraction = 0, scale = 1, unit, bytes;

	int r = size_parse_digits(&text, &whole);
	if (r < 0)
		return r;
	if (*text == '.') {
		const char *digits = ++text;
		r = size_parse_digits(&text, &fraction);
		if (r < 0 || text - digits > 6) /* six digits of a tebibyte still fit 64 bits */
			return -EINVAL;
		for (const char *at = digits; at < text; at++)
			scale *= 10;
	}
	while (*text == ' ')
		text++;
	r = size_parse_unit(text, &unit);
	if (r < 0)
		return r;
	if (scale > 1 && unit == 1)
		return -EINVAL;
	/* A broken byte is rounded up: never less than what was asked for. */
	if (__builtin_mul_overflow(whole, unit, &bytes) ||
		__builtin_add_overflow(bytes, (fraction * unit + scale - 1) / scale, &bytes))
		return -ERANGE;
	*ret_bytes = bytes;
	return 0;
}

const char *size_format(uint64_t bytes, char text[SIZE_TEXT])
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	unsigned i = 0;
	uint64_t unit = 1;

	while (i + 1 < ARRAY_SIZE(names) && bytes / unit >= 1024) {
		unit <<= 10;
		i++;
	}
	uint64_t tenths = bytes / unit * 10 + (bytes % unit * 10 + unit / 2) / unit;
	if (tenths >= 10240 && i + 1 < ARRAY_SIZE(names)) {
		tenths = 10;
		i++;
	}
	if (tenths % 10)
		snprintf(text, SIZE_TEXT, "%u.%u %s", (unsigned)(tenths / 10), (unsigned)(tenths % 10),
			names[i]);
	else
		snprintf(text, SIZE_TEXT, "%u %s", (unsigned)(tenths / 10), names[i]);
	return text;
}

const char *size_format_exact(uint64_t bytes, char text[SIZE_TEXT])
{
	unsigned i = 0;

	while (bytes > 0 && bytes % 1024 == 0 && size_units[i]) {
		bytes /= 1024;
		i++;
	}
	if (i > 0)
		snprintf(text, SIZE_TEXT, "%llu%c", (unsigned long long)bytes, size_units[i - 1]);
	else
		snprintf(text, SIZE_TEXT, "%llu", (unsigned long long)bytes);
	return text;
}

uint64_t size_pages(uint64_t bytes, uint64_t page_size)
{
	return page_size ? bytes / page_size + (bytes % page_size != 0) : 0;
}

uint64_t size_floor_pow2(uint64_t n)
{
	return n ? 1ull << (63 - __builtin_clzll(n)) : 0;
}
