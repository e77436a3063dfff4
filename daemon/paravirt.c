/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* paravirt.c - the facts of the regime, and its name. Reads once what its parts decide by; owns nothing. */
#include "paravirt_parts.h"

#include <stdarg.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

/* Hypervisors answer between these whatever the greatest leaf of the CPU is. */
#define LEAF_HYPERVISOR 0x40000000u
#define LEAF_EXTENDED   0x80000000u

bool paravirt_run_cpuid(uint32_t leaf, uint32_t subleaf, struct paravirt_leaf *ret_leaf)
{
	struct paravirt_leaf out;
	bool is_hypervisor = leaf >= LEAF_HYPERVISOR && leaf < LEAF_EXTENDED;

	if (!is_hypervisor && (uint32_t)__get_cpuid_max(leaf & LEAF_EXTENDED, NULL) < leaf)
		return false;
	__cpuid_count(leaf, subleaf, out.eax, out.ebx, out.ecx, out.edx);
	*ret_leaf = out;
	return true;
}
#else
bool paravirt_run_cpuid(uint32_t leaf, uint32_t subleaf, struct paravirt_leaf *ret_leaf)
{
	return false;
}
#endif

const char *paravirt_format(enum paravirt_answer answer)
{
	return answer == PARAVIRT_YES ? "yes" : answer == PARAVIRT_NO ? "no" : "";
}

struct paravirt_fact *paravirt_add(
	struct paravirt_reader *reader, const char *name, const char *value, const char *where, ...)
{
	struct paravirt *to = reader->to;
	/* The names are few and ours; the last place would be lost, never memory. */
	struct paravirt_fact *fact = &to->facts[MIN(to->fact_count, PARAVIRT_FACTS_MAX - 1)];
	va_list args;

	fact->name = name;
	snprintf(fact->value, sizeof(fact->value), "%s", value);
	va_start(args, where);
	vsnprintf(fact->where, sizeof(fact->where), where, args);
	va_end(args);
	to->fact_count = MIN(to->fact_count + 1, PARAVIRT_FACTS_MAX);
	return fact;
}

const struct paravirt_fact *paravirt_find_fact(const struct paravirt *paravirt, const char *name)
{
	for (size_t i = 0; i < paravirt->fact_count; i++) {
		if (strcmp(paravirt->facts[i].name, name) == 0)
			return &paravirt->facts[i];
	}
	return NULL;
}

const char *paravirt_get_name(const struct paravirt *paravirt)
{
	return paravirt->name;
}

bool paravirt_is_its_guest(const struct paravirt_reader *reader)
{
	/* "xen" is the clock of both xen-pv and xen-hvm. */
	size_t length = strlen(reader->kernel_guest);

	return length > 0 && strncmp(reader->kernel_guest, reader->short_name, length) == 0;
}

static void paravirt_make_name(struct paravirt_reader *reader)
{
	bool is_contradicted = *reader->kernel_guest && !paravirt_is_its_guest(reader);

	snprintf(reader->to->name, sizeof(reader->to->name), "%s%s%s%s%s rcu=%s%s%s", reader->short_name,
		is_contradicted ? "/" : "", is_contradicted ? reader->kernel_guest : "",
		*reader->used ? ":" : "", reader->used, *reader->rcu ? reader->rcu : "?",
		strcmp(reader->pmd, "affected") == 0 ? " pmd-ipi" : "",
		reader->invlpgb == PARAVIRT_YES ? " invlpgb" : "");
}

void paravirt_read(const char *root, paravirt_cpuid cpuid, struct paravirt *ret_paravirt)
{
	struct paravirt_reader reader = {.to = ret_paravirt, .cpuid = cpuid};

	memset(ret_paravirt, 0, sizeof(*ret_paravirt));
	paravirt_read_kernel(root, &reader.kernel);
	paravirt_read_cpu(&reader);
	paravirt_read_tables(&reader);
	paravirt_make_name(&reader);
}
