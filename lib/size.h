/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* size.h - sizes and labels as people write and read them. Pure. */
#ifndef HPZ_SIZE_H
#define HPZ_SIZE_H

#include <stddef.h>
#include <stdint.h>

/* "512M", "2G", "4096", "1.5G", "64MiB", "2097152B"; K M G T are powers of 1024. 0 or -EINVAL, -ERANGE. */
int size_parse(const char *text, uint64_t *ret_bytes);

#define SIZE_TEXT 24
/* "2 MiB", "1.5 GiB", "0 B": at most one decimal; returns `text`. */
const char *size_format(uint64_t bytes, char text[SIZE_TEXT]);
/* "2M", "1G", "16K": exact, as the config and the command line take it; returns `text`. */
const char *size_format_exact(uint64_t bytes, char text[SIZE_TEXT]);

/* bytes / page_size, rounded up; never overflows. */
uint64_t size_pages(uint64_t bytes, uint64_t page_size);

/* Largest power of two that is at most n; 0 for 0. */
uint64_t size_floor_pow2(uint64_t n);

#endif
