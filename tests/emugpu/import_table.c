/* import_table.c: finds and changes an entry of a library's import table. */
#include "import_table.h"

#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct search {
	const char *name;
	ElfW(Addr) inside;
	void *now, *before;
};

struct table {
	const ElfW(Sym) * symbols;
	const char *names;
	const ElfW(Rela) * relocations[2];
	size_t n[2];
};

static void read_table(const struct dl_phdr_info *info, const ElfW(Dyn) * d, struct table *t)
{
	for (; d->d_tag != DT_NULL; d++) {
		/* On some machines the loader adds the library's address to these, on some not. */
		ElfW(Addr) at = d->d_un.d_ptr;
		const void *p = (const void *)(at < info->dlpi_addr ? at + info->dlpi_addr : at);

		if (d->d_tag == DT_SYMTAB)
			t->symbols = p;
		else if (d->d_tag == DT_STRTAB)
			t->names = p;
		else if (d->d_tag == DT_JMPREL)
			t->relocations[0] = p;
		else if (d->d_tag == DT_RELA)
			t->relocations[1] = p;
		else if (d->d_tag == DT_PLTRELSZ)
			t->n[0] = d->d_un.d_val / sizeof(ElfW(Rela));
		else if (d->d_tag == DT_RELASZ)
			t->n[1] = d->d_un.d_val / sizeof(ElfW(Rela));
	}
}

/* The entry may be read-only by now. */
static void put(struct search *s, void **entry)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	void *start = (void *)((uintptr_t)entry & ~(page - 1));

	if (mprotect(start, page, PROT_READ | PROT_WRITE))
		return;
	s->before = *entry;
	*entry = s->now;
}

static const ElfW(Dyn) * dynamic_of(const struct dl_phdr_info *info, ElfW(Addr) inside)
{
	const ElfW(Dyn) *dynamic = NULL;
	bool here = false;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		ElfW(Addr) start = info->dlpi_addr + p->p_vaddr;

		if (p->p_type == PT_DYNAMIC)
			dynamic = (const ElfW(Dyn) *)start;
		here |= p->p_type == PT_LOAD && inside >= start && inside < start + p->p_memsz;
	}
	return here ? dynamic : NULL;
}

static int look(struct dl_phdr_info *info, size_t size, void *argument)
{
	struct search *s = argument;
	const ElfW(Dyn) *dynamic = dynamic_of(info, s->inside);
	struct table t = {0};

	(void)size;
	if (!dynamic)
		return 0;
	read_table(info, dynamic, &t);
	for (int k = 0; k < 2; k++)
		for (size_t i = 0; i < t.n[k]; i++) {
			const ElfW(Rela) *r = &t.relocations[k][i];
			const ElfW(Sym) *symbol = &t.symbols[ELF64_R_SYM(r->r_info)];

			if (ELF64_R_SYM(r->r_info) && !strcmp(t.names + symbol->st_name, s->name))
				put(s, (void **)(info->dlpi_addr + r->r_offset));
		}
	return 1;
}

void *import_replace(const void *inside, const char *name, void *now)
{
	struct search s = {.name = name, .inside = (ElfW(Addr))inside, .now = now};

	dl_iterate_phdr(look, &s);
	return s.before;
}
