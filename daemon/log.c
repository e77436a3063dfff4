/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * log.c - lines on stderr.
 * Owns the level and the prefix, nothing else. Must not allocate: it also speaks when there is no memory.
 */
#include "log.h"

#include "news.h"
#include "metrics.h"

#include <stdarg.h>
#include <sys/stat.h>

#define LOG_LINE_MAX 2048

static const char *log_program = "hpzd";
static enum log_level log_level_now = LOG_LEVEL_INFO;
static bool log_has_priority;

/* systemd's rule: the variable may be inherited while stderr has been redirected since. */
static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat st;

	if (!stream || sscanf(stream, "%llu:%llu", &device, &inode) != 2 || fstat(STDERR_FILENO, &st) < 0)
		return false;
	return device == (unsigned long long)st.st_dev && inode == (unsigned long long)st.st_ino;
}

void log_init(const char *program)
{
	log_program = program;
	log_has_priority = stderr_is_journal();
}

void log_set_level(enum log_level level)
{
	log_level_now = level;
}

void log_set_prefix(bool is_on)
{
	log_has_priority = is_on;
}

int log_find_level(const char *name, enum log_level *ret_level)
{
	static const struct {
		const char *name;
		enum log_level level;
	} levels[] = {
		{"error", LOG_LEVEL_ERROR},
		{"warning", LOG_LEVEL_WARNING},
		{"info", LOG_LEVEL_INFO},
		{"debug", LOG_LEVEL_DEBUG},
	};

	for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
		if (strcmp(name, levels[i].name) == 0) {
			*ret_level = levels[i].level;
			return 0;
		}
	return -EINVAL;
}

/* C0, DEL, and C1 as UTF-8 writes it (0xc2 0x80 to 0xc2 0x9f). */
static void replace_control_characters(char *text)
{
	for (unsigned char *c = (unsigned char *)text; *c; c++) {
		if (*c == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f)
			c[0] = c[1] = '?';
		else if (*c < 0x20 || *c == 0x7f)
			*c = '?';
	}
}

static void write_line(const char *line, size_t length)
{
	while (length) {
		ssize_t n = write(STDERR_FILENO, line, length);
		if (n < 0 && errno == EINTR)
			continue;
		/* Nobody to tell: a full non-blocking or a broken stderr loses the line. */
		if (n <= 0)
			return;
		line += n;
		length -= (size_t)n;
	}
}

void log_write(enum log_level level, const char *format, ...)
{
	int saved = errno;
	char line[LOG_LINE_MAX];
	int prefix, body;
	size_t length;
	va_list args;

	if (level <= LOG_LEVEL_WARNING)
		metrics_add(METRICS_LOG_MESSAGES,
			level == LOG_LEVEL_WARNING ? METRICS_WARNING : METRICS_ERROR, 1);
	if (level > log_level_now)
		return;
	if (log_has_priority)
		prefix = snprintf(line, 8, "<%d>", (int)level);
	else
		prefix = snprintf(line, 64, "%.60s: ", log_program);
	va_start(args, format);
	errno = saved; /* for %m */
	body = vsnprintf(line + prefix, sizeof line - (size_t)prefix - 1, format, args);
	va_end(args);
	if (body < 0)
		line[prefix] = 0;
	replace_control_characters(line + prefix);
	length = strlen(line);
	if (body > 0 && (size_t)body > length - (size_t)prefix)
		memcpy(line + length - 3, "...", 3);
	if (level <= LOG_LEVEL_INFO)
		news_add_line((uint32_t)level, line + prefix);
	line[length++] = '\n';
	write_line(line, length);
	errno = saved;
}
