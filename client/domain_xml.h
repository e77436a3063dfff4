/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * domain_xml.h - what libvirt's description of a domain says about its memory, and which files that means.
 * Pure: bytes in, structs out, no I/O. The bytes may be anybody's: whoever may define a domain writes most of
 * them, and nothing that is returned can lead out of a directory.
 */
#ifndef HPZ_DOMAIN_XML_H
#define HPZ_DOMAIN_XML_H

#include "util.h"

#define DOMAIN_XML_NAMESPACE "https://hpz.dev/domain/1"
#define DOMAIN_XML_ELEMENT   "memory"

#define DOMAIN_XML_MAX   (4u << 20) /* bytes; libvirt's own are some tens of KiB */
#define DOMAIN_NAME_MAX  255        /* bytes: libvirt's own files have it as their name */
#define DOMAIN_UUID_MAX  36
#define DOMAIN_ALIAS_MAX 63
#define DOMAIN_CELLS_MAX 64
#define DOMAIN_DIMMS_MAX 256
#define DOMAIN_FILES_MAX 64 /* cells of one lease */
#define DOMAIN_WHY_MAX   192

enum domain_source {
	DOMAIN_SOURCE_NONE, /* not said: libvirt's default */
	DOMAIN_SOURCE_FILE,
	DOMAIN_SOURCE_MEMFD,
	DOMAIN_SOURCE_ANONYMOUS,
};

enum domain_access {
	DOMAIN_ACCESS_NONE, /* not said */
	DOMAIN_ACCESS_SHARED,
	DOMAIN_ACCESS_PRIVATE,
};

enum domain_mode {
	DOMAIN_MODE_NONE, /* not said: strict */
	DOMAIN_MODE_STRICT,
	DOMAIN_MODE_PREFERRED,
	DOMAIN_MODE_INTERLEAVE,
	DOMAIN_MODE_RESTRICTIVE,
};

enum domain_choice {
	DOMAIN_CHOICE_NONE, /* not said: the host's configuration counts */
	DOMAIN_CHOICE_NO,
	DOMAIN_CHOICE_YES,
};

enum domain_failure {
	DOMAIN_FAILURE_NONE, /* not said: the host's configuration counts */
	DOMAIN_FAILURE_FALLBACK,
	DOMAIN_FAILURE_REFUSE,
};

/* Where memory is to come from. */
struct domain_nodes {
	uint64_t mask; /* bit N is node N of the host; 0: not said */
	enum domain_mode mode;
};

/* A node of the guest. */
struct domain_cell {
	uint32_t id;
	uint64_t size; /* bytes */
	enum domain_access access;
	struct domain_nodes nodes;
};

/* A memory device. */
struct domain_dimm {
	char alias[DOMAIN_ALIAS_MAX + 1]; /* "" not said */
	bool is_dimm;                     /* else a virtio-mem and so on */
	bool is_elsewhere;                /* an nvdimm and so on: its file is not in the domain's directory */
	bool has_page_size;               /* it has huge pages of its own */
	uint64_t size;                    /* bytes */
	enum domain_access access;
	struct domain_nodes nodes;
};

struct domain {
	char uuid[DOMAIN_UUID_MAX + 1]; /* lower case; "" not said */
	char name[DOMAIN_NAME_MAX + 1]; /* UTF-8 without control characters and slashes */
	char type[32];                  /* "kvm", "qemu" */
	char arch[32], machine[64];     /* "" not said */
	char emulator[256];             /* "" not said, or longer */
	int64_t id;                     /* -1: not running */
	uint64_t memory;                /* bytes, dimms included */
	enum domain_source source;
	enum domain_access access;
	bool is_discarded;  /* <discard/>: punched out when QEMU ends */
	bool has_hugepages; /* <hugepages>: libvirt asks for a directory or a memfd, never for a file */
	uint64_t page_size; /* bytes: the first of <hugepages>; 0: not said */
	char dac_label[128], selinux_label[256]; /* "" not said */
	size_t cell_count, dimm_count;
	struct domain_cell cells[DOMAIN_CELLS_MAX];
	struct domain_dimm dimms[DOMAIN_DIMMS_MAX];
	struct domain_nodes nodes; /* of all of it */
	/* <metadata><hpz:memory> */
	struct {
		enum domain_choice pool;
		enum domain_failure on_failure;
		uint64_t page_size;               /* bytes; 0: not said */
		uint64_t nodes;                   /* mask; 0: not said */
		char mistake[DOMAIN_WHY_MAX / 2]; /* what is wrong with it; "" nothing */
	} settings;
};

/*
 * Reads an XML of one domain. 0; -EINVAL with a sentence in ret_why: it is none, or says what cannot be; or
 * -ENOMEM. A mistake in the settings is no error: see domain.settings.mistake.
 */
int domain_xml_read(const char *xml, size_t length, struct domain *ret_domain, char ret_why[DOMAIN_WHY_MAX]);

/* A file that QEMU opens as memory. */
struct domain_file {
	char alias[DOMAIN_ALIAS_MAX +
		   1];     /* its name in the domain's directory: one component, no dots first */
	uint64_t size;     /* bytes, at least */
	uint64_t nodes;    /* mask: from one of these; 0: from any */
	bool is_preferred; /* but from another if need be */
};

struct domain_plan {
	char why[DOMAIN_WHY_MAX]; /* why its memory cannot come from the pool; "" it can */
	bool is_wanted;           /* false with a why: nobody asked for it, so nothing is wrong */
	uint64_t page_size;       /* bytes; 0: any */
	uint64_t size;            /* bytes, of all files */
	size_t left_out;          /* memory devices whose memory QEMU makes itself */
	uint64_t left_out_size;   /* bytes of these, as far as their files are in the domain's directory */
	size_t count;
	struct domain_file files[DOMAIN_FILES_MAX];
};

/* Which files the domain's memory is in, in which the first is its memory at boot. */
void domain_xml_plan(const struct domain *domain, struct domain_plan *ret_plan);

/*
 * The same whatever the pool has to do with it: the files that QEMU itself makes in the domain's directory if
 * there are none, and could be made for it. None, if these are not all that can be told of its memory.
 */
void domain_xml_plan_own(const struct domain *domain, struct domain_plan *ret_plan);

/*
 * Bytes that QEMU itself makes files of in the domain's directory if there are none; 0: it makes none there,
 * as its memory is no file, or has a page size.
 */
uint64_t domain_xml_get_own_size(const struct domain *domain);

/* The file of that name, or NULL. */
const struct domain_file *domain_xml_find_file(const struct domain_plan *plan, const char *alias);

/*
 * The name of the directory that libvirt makes for the files of a running domain: its id and the first 20
 * characters of its name. false: it is not running.
 */
#define DOMAIN_DIRECTORY_MAX 112
bool domain_xml_get_directory(const struct domain *domain, char ret_name[DOMAIN_DIRECTORY_MAX]);

/* Whether it can be a name in a directory that is QEMU's: letters, digits, and . _ - in between. */
bool domain_xml_is_alias(const char *text);

#endif
