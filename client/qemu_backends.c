/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * qemu_backends.c - memory backends on a QEMU's command line: see qemu_backends.h.
 * Both forms are read by one table of properties. jansson reads the JSON: it is the words of a program that
 * we do not know, with whatever properties its next version adds, and they must come out as they went in.
 */
#include "qemu_backends.h"

#include <jansson.h>

#include "qemu_options.h"
#include "util.h"

#define QEMU_BACKENDS_SIZE_MAX (INT64_MAX - 8192)
#define QEMU_BACKENDS_NODES    64

/* ---- properties ---- */

enum qemu_property_type {
	QEMU_PROPERTY_BOOL,
	QEMU_PROPERTY_SIZE,
	QEMU_PROPERTY_TEXT, /* char * of its own */
	QEMU_PROPERTY_ID,
	QEMU_PROPERTY_POLICY,
	QEMU_PROPERTY_NODES,
};

static const struct qemu_property {
	const char *key;
	enum qemu_property_type type;
	size_t offset; /* in struct qemu_backend */
} qemu_properties[] = {
	{"id", QEMU_PROPERTY_ID, offsetof(struct qemu_backend, id)},
	{"size", QEMU_PROPERTY_SIZE, offsetof(struct qemu_backend, size)},
	{"hugetlb", QEMU_PROPERTY_BOOL, offsetof(struct qemu_backend, is_huge)},
	{"hugetlbsize", QEMU_PROPERTY_SIZE, offsetof(struct qemu_backend, page_size)},
	{"mem-path", QEMU_PROPERTY_TEXT, offsetof(struct qemu_backend, mem_path)},
	{"policy", QEMU_PROPERTY_POLICY, offsetof(struct qemu_backend, policy)},
	{"host-nodes", QEMU_PROPERTY_NODES, offsetof(struct qemu_backend, node_mask)},
	{"offset", QEMU_PROPERTY_SIZE, offsetof(struct qemu_backend, offset)},
	{"readonly", QEMU_PROPERTY_BOOL, offsetof(struct qemu_backend, is_readonly)},
	{"pmem", QEMU_PROPERTY_BOOL, offsetof(struct qemu_backend, is_pmem)},
	{"reserve", QEMU_PROPERTY_BOOL, offsetof(struct qemu_backend, is_reserved)},
};

static bool qemu_backend_set_bool(bool *value, const char *text)
{
	static const char *const words[] = {"off", "on", "no", "yes", "false", "true", "n", "y"};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (strcmp(words[i], text) != 0)
			continue;
		*value = i % 2;
		return true;
	}
	return false;
}

static bool qemu_backend_set_text(char **value, const char *text)
{
	free(*value);
	*value = strdup(text);
	return *value != NULL;
}

static bool qemu_backend_set_id(char *value, const char *text)
{
	if (strlen(text) > QEMU_BACKEND_ID)
		return false;
	strcpy(value, text);
	return true;
}

static bool qemu_backend_set_policy(uint32_t *value, const char *text)
{
	static const char *const words[] = {[QEMU_BACKEND_DEFAULT] = "default",
		[QEMU_BACKEND_PREFERRED] = "preferred",
		[QEMU_BACKEND_BIND] = "bind",
		[QEMU_BACKEND_INTERLEAVE] = "interleave"};

	for (uint32_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (strcmp(words[i], text) != 0)
			continue;
		*value = i;
		return true;
	}
	return false;
}

static bool qemu_backend_add_nodes(uint64_t *mask, uint64_t first, uint64_t last)
{
	if (first > last || last >= QEMU_BACKENDS_NODES)
		return false;
	*mask |= (UINT64_MAX >> (63 - (last - first))) << first;
	return true;
}

/* "1", "0-3" */
static bool qemu_backend_add_range(uint64_t *mask, const char *text)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	unsigned long first = strtoul(text, &end, 10), last = first;
	if (end[0] == '-' && end[1] >= '0' && end[1] <= '9')
		last = strtoul(end + 1, &end, 10);
	return *end == '\0' && qemu_backend_add_nodes(mask, first, last);
}

static void *qemu_property_find(
	struct qemu_backend *backend, const char *key, enum qemu_property_type *ret_type)
{
	for (size_t i = 0; i < ARRAY_SIZE(qemu_properties); i++) {
		if (strcmp(qemu_properties[i].key, key) != 0)
			continue;
		*ret_type = qemu_properties[i].type;
		return (char *)backend + qemu_properties[i].offset;
	}
	return NULL;
}

/* Whether an object is a backend of ours. */
enum qemu_backend_found {
	QEMU_BACKEND_IT_IS_NOT,
	QEMU_BACKEND_IT_IS,
	QEMU_BACKEND_PERHAPS, /* it is not understood */
};

static enum qemu_backend_found qemu_backend_set_kind(struct qemu_backend *backend, const char *text)
{
	/* Of an enclave, and of POSIX shared memory, which are never of huge pages. */
	static const char *const others[] = {"memory-backend-epc", "memory-backend-shm"};
	static const char *const words[] = {[QEMU_BACKEND_RAM] = "memory-backend-ram",
		[QEMU_BACKEND_MEMFD] = "memory-backend-memfd",
		[QEMU_BACKEND_FILE] = "memory-backend-file"};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (strcmp(words[i], text) != 0)
			continue;
		backend->kind = (enum qemu_backend_kind)i;
		return QEMU_BACKEND_IT_IS;
	}
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		if (strcmp(others[i], text) == 0)
			return QEMU_BACKEND_IT_IS_NOT;
	}
	return strncmp(text, "memory-backend-", sizeof("memory-backend-") - 1) == 0 ? QEMU_BACKEND_PERHAPS
										    : QEMU_BACKEND_IT_IS_NOT;
}

static void qemu_backend_doubt(struct qemu_backend *backend)
{
	backend->left_alone = "one of its properties cannot be read";
	backend->is_unclear = true;
}

/* ---- as key=value ---- */

static bool qemu_backend_read_pair(struct qemu_backend *backend, const struct qemu_pair *pair)
{
	_cleanup_free_ char *text = strndup(pair->value, pair->value_length);
	_cleanup_free_ char *key = strndup(pair->key, pair->key_length);
	enum qemu_property_type type;

	if (!text || !key)
		return false;
	qemu_pair_get_value(pair, text, pair->value_length + 1);
	void *value = qemu_property_find(backend, key, &type);
	if (!value)
		return true;
	/* A flag is "on" when it has no "=". */
	bool is_flag = pair->length == pair->key_length;
	switch (type) {
	case QEMU_PROPERTY_BOOL:
		return qemu_backend_set_bool(value, is_flag ? "on" : text);
	case QEMU_PROPERTY_SIZE:
		return qemu_pair_get_size(pair, 0, value);
	case QEMU_PROPERTY_TEXT:
		return qemu_backend_set_text(value, text);
	case QEMU_PROPERTY_ID:
		return qemu_backend_set_id(value, text);
	case QEMU_PROPERTY_POLICY:
		return qemu_backend_set_policy(value, text);
	case QEMU_PROPERTY_NODES:
		return qemu_backend_add_range(value, text);
	}
	return false;
}

/* Text under `key`, or the first value if it stands alone; NULL: there is none. The last one counts. */
static char *qemu_pairs_dup(const char *word, const char *key)
{
	struct qemu_pairs pairs = QEMU_PAIRS_OF(word);
	struct qemu_pair pair;
	char *text = NULL;

	while (qemu_pairs_next(&pairs, &pair)) {
		if (pair.key && !qemu_pair_has_key(&pair, key))
			continue;
		free(text);
		text = strndup(pair.value, pair.value_length);
		if (text)
			qemu_pair_get_value(&pair, text, pair.value_length + 1);
	}
	return text;
}

static enum qemu_backend_found qemu_backend_read_text(struct qemu_backend *backend, const char *word)
{
	_cleanup_free_ char *kind = qemu_pairs_dup(word, "qom-type");
	struct qemu_pairs pairs = QEMU_PAIRS_OF(word);
	struct qemu_pair pair;

	enum qemu_backend_found found = kind ? qemu_backend_set_kind(backend, kind) : QEMU_BACKEND_IT_IS_NOT;
	while (found == QEMU_BACKEND_IT_IS && qemu_pairs_next(&pairs, &pair)) {
		if (pair.key && !qemu_backend_read_pair(backend, &pair))
			qemu_backend_doubt(backend);
	}
	return found;
}

/* ---- as JSON ---- */

static bool qemu_backend_read_nodes(uint64_t *mask, const json_t *list)
{
	if (!json_is_array(list))
		return false;
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *node = json_array_get(list, i);
		json_int_t number = json_integer_value(node);
		if (!json_is_integer(node) || number < 0 ||
			!qemu_backend_add_nodes(mask, (uint64_t)number, (uint64_t)number))
			return false;
	}
	return true;
}

static bool qemu_backend_read_member(struct qemu_backend *backend, const char *key, const json_t *member)
{
	enum qemu_property_type type;
	void *value = qemu_property_find(backend, key, &type);
	const char *text = json_string_value(member);

	if (!value)
		return true;
	switch (type) {
	case QEMU_PROPERTY_BOOL:
		*(bool *)value = json_is_true(member);
		return json_is_boolean(member);
	case QEMU_PROPERTY_SIZE:
		*(uint64_t *)value = (uint64_t)json_integer_value(member);
		return json_is_integer(member) && *(uint64_t *)value <= QEMU_BACKENDS_SIZE_MAX;
	case QEMU_PROPERTY_TEXT:
		return text && qemu_backend_set_text(value, text);
	case QEMU_PROPERTY_ID:
		return text && qemu_backend_set_id(value, text);
	case QEMU_PROPERTY_POLICY:
		return text && qemu_backend_set_policy(value, text);
	case QEMU_PROPERTY_NODES:
		return qemu_backend_read_nodes(value, member);
	}
	return false;
}

/* NULL: it is none, or none that QEMU and we read alike. */
static json_t *qemu_backends_load(const char *word)
{
	json_error_t error;

	return json_loads(word, JSON_REJECT_DUPLICATES, &error);
}

/* The same as qemu_backend_read_text(). */
static enum qemu_backend_found qemu_backend_read_json(struct qemu_backend *backend, const char *word)
{
	json_t *object = qemu_backends_load(word), *member;
	const char *key, *kind = json_string_value(json_object_get(object, "qom-type"));
	enum qemu_backend_found found = kind ? qemu_backend_set_kind(backend, kind) : QEMU_BACKEND_PERHAPS;

	json_object_foreach(object, key, member)
	{
		if (found == QEMU_BACKEND_IT_IS && !qemu_backend_read_member(backend, key, member))
			qemu_backend_doubt(backend);
	}
	json_decref(object);
	return found;
}

/* ---- who uses them ---- */

static void qemu_backends_mark(struct qemu_backends *backends, const char *id)
{
	for (size_t i = 0; id && i < backends->count; i++)
		backends->list[i].is_used |= strcmp(backends->list[i].id, id) == 0;
}

static void qemu_backends_mark_machine(struct qemu_backends *backends, const char *value)
{
	struct qemu_pairs pairs = QEMU_PAIRS_OF(value);
	struct qemu_pair pair;
	char id[QEMU_BACKEND_ID + 1];

	while (qemu_pairs_next(&pairs, &pair)) {
		bool is_backend = qemu_pair_has_key(&pair, "memory-backend");
		if (is_backend && qemu_pair_get_value(&pair, id, sizeof(id)))
			qemu_backends_mark(backends, id);
	}
}

static void qemu_backends_mark_numa(struct qemu_backends *backends, const char *value)
{
	struct qemu_pairs pairs = QEMU_PAIRS_OF(value);
	struct qemu_pair pair;
	char id[QEMU_BACKEND_ID + 1];

	while (qemu_pairs_next(&pairs, &pair)) {
		bool is_memdev = qemu_pair_has_key(&pair, "memdev");
		if (is_memdev && qemu_pair_get_value(&pair, id, sizeof(id)))
			qemu_backends_mark(backends, id);
	}
}

static void qemu_backends_mark_device_json(struct qemu_backends *backends, const char *value)
{
	json_error_t error;
	/* Numbers of others' may be larger than ours. */
	json_t *device = json_loads(value, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
	const char *driver = json_string_value(json_object_get(device, "driver"));

	if (driver && strcmp(driver, "pc-dimm") == 0)
		qemu_backends_mark(backends, json_string_value(json_object_get(device, "memdev")));
	if (!device)
		backends->unclear = "a device, in JSON, cannot be read, and may be a DIMM";
	json_decref(device);
}

/*
 * A DIMM has its memory all the time. A virtio-mem device takes what is plugged and gives back the rest, an
 * NVDIMM keeps what is written, others share it with somebody.
 */
static void qemu_backends_mark_device(struct qemu_backends *backends, const char *value)
{
	/* It may be written with escapes. */
	if (*value == '{') {
		qemu_backends_mark_device_json(backends, value);
		return;
	}
	if (!strstr(value, "pc-dimm"))
		return;
	_cleanup_free_ char *driver = qemu_pairs_dup(value, "driver");
	if (driver && strcmp(driver, "pc-dimm") == 0)
		qemu_backends_mark_numa(backends, value);
}

static const struct {
	const char *option;
	void (*mark)(struct qemu_backends *backends, const char *value);
} qemu_backends_users[] = {
	{"machine", qemu_backends_mark_machine},
	{"M", qemu_backends_mark_machine},
	{"numa", qemu_backends_mark_numa},
	{"device", qemu_backends_mark_device},
};

static void qemu_backends_mark_used(struct qemu_backends *backends, char *const argv[])
{
	struct qemu_option option;
	size_t at = 1;

	while (qemu_options_next(argv, &at, &option)) {
		for (size_t i = 0; option.value && i < ARRAY_SIZE(qemu_backends_users); i++) {
			if (strcmp(qemu_backends_users[i].option, option.name) == 0)
				qemu_backends_users[i].mark(backends, option.value);
		}
	}
}

/* ---- all of them ---- */

static const char *qemu_backend_judge(const struct qemu_backend *backend)
{
	if (!backend->is_used)
		return "it is neither the machine's, nor a node's, nor a DIMM's";
	if (backend->size == 0)
		return "it has no size";
	if (backend->kind == QEMU_BACKEND_FILE && !backend->mem_path)
		return "it has no path";
	if (backend->is_readonly || backend->is_pmem || backend->offset)
		return "its file is more than empty memory";
	if (!backend->is_reserved)
		return "it takes its memory bit by bit";
	if (backend->policy == QEMU_BACKEND_INTERLEAVE)
		return "it is interleaved, and a file of ours is of one node";
	if ((backend->policy == QEMU_BACKEND_DEFAULT) != (backend->node_mask == 0))
		return "its policy and its nodes do not go together";
	return NULL;
}

static bool qemu_backends_add(struct qemu_backends *backends, const char *value, size_t word)
{
	struct qemu_backend backend = {.word = word, .is_reserved = true};

	enum qemu_backend_found found = *value == '{' ? qemu_backend_read_json(&backend, value)
						      : qemu_backend_read_text(&backend, value);
	if (found == QEMU_BACKEND_PERHAPS)
		backends->unclear = "an object cannot be read, and may be a memory backend";
	if (found == QEMU_BACKEND_IT_IS) {
		struct qemu_backend *list = reallocarray(backends->list, backends->count + 1, sizeof(*list));
		if (list) {
			list[backends->count++] = backend;
			backends->list = list;
			return true;
		}
		free(backend.mem_path);
		return false;
	}
	free(backend.mem_path);
	return true;
}

bool qemu_backends_read(char *const argv[], struct qemu_backends *ret_backends)
{
	struct qemu_backends backends = {0};
	struct qemu_option option;
	const char *changed = NULL;
	size_t at = 1;

	while (qemu_options_next(argv, &at, &option)) {
		if (strcmp(option.name, "set") == 0 || strcmp(option.name, "readconfig") == 0)
			changed = "other options may change it";
		if (strcmp(option.name, "readconfig") == 0)
			backends.unclear = "the file of -readconfig may name a memory backend";
		if (strcmp(option.name, "mem-path") == 0)
			backends.mem_path = option.value;
		if (strcmp(option.name, "object") != 0 || !option.value)
			continue;
		if (!qemu_backends_add(&backends, option.value, option.word)) {
			qemu_backends_deinit(&backends);
			return false;
		}
	}
	if (backends.count > 0)
		qemu_backends_mark_used(&backends, argv);
	for (size_t i = 0; i < backends.count; i++) {
		struct qemu_backend *backend = &backends.list[i];
		const char *why = changed ? changed : qemu_backend_judge(backend);
		backend->left_alone = backend->left_alone ? backend->left_alone : why;
		backend->is_unclear |= changed != NULL;
	}
	*ret_backends = backends;
	return true;
}

void qemu_backends_deinit(struct qemu_backends *backends)
{
	for (size_t i = 0; i < backends->count; i++)
		free(backends->list[i].mem_path);
	free(backends->list);
	*backends = (struct qemu_backends){0};
}

/* ---- what is written ---- */

/*
 * What a backend on a file of ours does not have: the properties of a memfd, and to throw the memory away at
 * the end page by page, which hpzd does all at once.
 */
static const char *const qemu_backend_dropped[] = {
	"qom-type", "mem-path", "share", "hugetlb", "hugetlbsize", "seal", "discard-data"};
static const char *const qemu_backend_placed[] = {"host-nodes", "policy"};

static bool qemu_backend_is_dropped(const struct qemu_pair *pair, bool keeps_nodes)
{
	for (size_t i = 0; i < ARRAY_SIZE(qemu_backend_dropped); i++) {
		if (qemu_pair_has_key(pair, qemu_backend_dropped[i]))
			return true;
	}
	for (size_t i = 0; !keeps_nodes && i < ARRAY_SIZE(qemu_backend_placed); i++) {
		if (qemu_pair_has_key(pair, qemu_backend_placed[i]))
			return true;
	}
	return !pair->key || pair->length == 0; /* the type; nothing, behind a last comma */
}

static char *qemu_backend_rewrite_text(const char *word, const char *mem_path, bool keeps_nodes)
{
	struct qemu_pairs pairs = QEMU_PAIRS_OF(word);
	struct qemu_pair pair;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	fputs("memory-backend-file", out);
	while (qemu_pairs_next(&pairs, &pair)) {
		if (!qemu_backend_is_dropped(&pair, keeps_nodes))
			fprintf(out, ",%.*s", (int)pair.length, pair.start);
	}
	fprintf(out, ",mem-path=%s,share=on", mem_path);
	bool failed = ferror(out);
	if (fclose(out) != 0 || failed) {
		free(text);
		return NULL;
	}
	return text;
}

static char *qemu_backend_rewrite_json(const char *word, const char *mem_path, bool keeps_nodes)
{
	json_t *object = qemu_backends_load(word);
	char *text = NULL;

	/* The type stays where it was, at the beginning. */
	for (size_t i = 1; i < ARRAY_SIZE(qemu_backend_dropped); i++)
		json_object_del(object, qemu_backend_dropped[i]);
	for (size_t i = 0; !keeps_nodes && i < ARRAY_SIZE(qemu_backend_placed); i++)
		json_object_del(object, qemu_backend_placed[i]);
	if (json_object_set_new(object, "qom-type", json_string("memory-backend-file")) == 0 &&
		json_object_set_new(object, "mem-path", json_string(mem_path)) == 0 &&
		json_object_set_new(object, "share", json_true()) == 0)
		text = json_dumps(object, JSON_COMPACT);
	json_decref(object);
	return text;
}

char *qemu_backends_rewrite(const char *word, const char *mem_path, bool keeps_nodes)
{
	return *word == '{' ? qemu_backend_rewrite_json(word, mem_path, keeps_nodes)
			    : qemu_backend_rewrite_text(word, mem_path, keeps_nodes);
}
