/* elf_tables.h: the tables of a loaded library, by the tags of its dynamic section. */
#ifndef GPU_LEASE_ELF_TABLES_H
#define GPU_LEASE_ELF_TABLES_H

#include <elf.h>
#include <link.h>
#include <stddef.h>

/* The part of the library that has this type (PT_DYNAMIC, PT_GNU_RELRO); NULL if it has none. */
static inline const ElfW(Phdr) * elf_part(const struct dl_phdr_info *info, ElfW(Word) type)
{
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == type)
			return &info->dlpi_phdr[i];
	return NULL;
}

/* A loaded library: where it begins, and its dynamic section (NULL if it has none). */
struct elf_library {
	ElfW(Addr) base;
	const ElfW(Dyn) * dynamic;
};

static inline struct elf_library elf_library(const struct dl_phdr_info *info)
{
	const ElfW(Phdr) *part = elf_part(info, PT_DYNAMIC);
	ElfW(Addr) base = info->dlpi_addr;

	return (struct elf_library){base, part ? (const ElfW(Dyn) *)(base + part->p_vaddr) : NULL};
}

/* The value of a tag of its dynamic section; 0 if it has none. */
static inline ElfW(Addr) elf_value(struct elf_library library, ElfW(Sxword) tag)
{
	for (const ElfW(Dyn) *d = library.dynamic; d && d->d_tag != DT_NULL; d++)
		if (d->d_tag == tag)
			return d->d_un.d_ptr;
	return 0;
}

/* The table that a tag points to; NULL if it has none. glibc relocates these tags in place, other
 * loaders do not. */
static inline const void *elf_table(struct elf_library library, ElfW(Sxword) tag)
{
	ElfW(Addr) at = elf_value(library, tag);

	return at ? (const void *)(at + (at < library.base ? library.base : 0)) : NULL;
}

#endif
