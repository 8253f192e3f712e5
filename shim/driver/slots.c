/* slots.c: reads and sets the slots of a loaded library. */
#include "driver/slots.h"

#include "driver/elf_tables.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#define JUMP_SLOT R_X86_64_JUMP_SLOT
#else
#define JUMP_SLOT R_AARCH64_JUMP_SLOT
#endif

/* An address that is not aligned is an operand of an instruction, which is left alone. */
static bool is_aligned(ElfW(Addr) address)
{
	return address % sizeof(void *) == 0;
}

static void see_table(const struct dl_phdr_info *info, const ElfW(Rela) * r, size_t bytes,
                      slot_function *see, void *data)
{
	const ElfW(Sym) *symbols = elf_table(elf_library(info), DT_SYMTAB);
	const char *strings = elf_table(elf_library(info), DT_STRTAB);

	if (!r || !symbols || !strings)
		return;
	for (const ElfW(Rela) *end = r + bytes / sizeof(*r); r < end; r++) {
		const ElfW(Sym) *symbol = &symbols[ELF64_R_SYM(r->r_info)];
		struct slot slot = {
		    .place = (void **)(info->dlpi_addr + r->r_offset),
		    .at_first_call = ELF64_R_TYPE(r->r_info) == JUMP_SLOT,
		};

		if (!ELF64_R_SYM(r->r_info) || symbol->st_shndx != SHN_UNDEF ||
		    !is_aligned(info->dlpi_addr + r->r_offset))
			continue;
		slot.name = strings + symbol->st_name;
		see(info, &slot, data);
	}
}

void slots_of(const struct dl_phdr_info *info, slot_function *see, void *data)
{
	struct elf_library of = elf_library(info);

	see_table(info, elf_table(of, DT_RELA), elf_value(of, DT_RELASZ), see, data);
	see_table(info, elf_table(of, DT_JMPREL), elf_value(of, DT_PLTRELSZ), see, data);
}

/* The part of the library that an address is in; NULL: none is loaded there. */
static const ElfW(Phdr) * part_at(const struct dl_phdr_info *info, uintptr_t address)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];

		if (part->p_type == PT_LOAD &&
		    address - (info->dlpi_addr + part->p_vaddr) < part->p_memsz)
			return part;
	}
	return NULL;
}

/* Until then it leads into the library itself. */
bool slot_is_unbound(const struct dl_phdr_info *info, const struct slot *slot)
{
	const ElfW(Phdr) *part = part_at(info, (uintptr_t)*slot->place);

	return slot->at_first_call && part && part->p_flags & PF_X;
}

/* What the loader lets a page of this part be once the library is relocated. Of what is constant
 * from then on it leaves the last page alone unless all of that page is. */
static int protection(const struct dl_phdr_info *info, const ElfW(Phdr) * part, uintptr_t page,
                      uintptr_t size)
{
	const ElfW(Phdr) *relro = elf_part(info, PT_GNU_RELRO);
	uintptr_t begin = relro ? info->dlpi_addr + relro->p_vaddr : 0;
	uintptr_t end = relro ? begin + relro->p_memsz : 0;
	bool constant = page >= (begin & -size) && page < (end & -size);

	return (part->p_flags & PF_R ? PROT_READ : 0) |
	       (part->p_flags & PF_W && !constant ? PROT_WRITE : 0) |
	       (part->p_flags & PF_X ? PROT_EXEC : 0);
}

void slot_set(const struct dl_phdr_info *info, const struct slot *slot, void *to)
{
	uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE), page = (uintptr_t)slot->place & -size;
	const ElfW(Phdr) *part = part_at(info, (uintptr_t)slot->place);
	int usual = part ? protection(info, part, page, size) : 0;

	if (!part || (!(usual & PROT_WRITE) && mprotect((void *)page, size, usual | PROT_WRITE)))
		return;
	__atomic_store_n(slot->place, to, __ATOMIC_RELAXED);
	if (!(usual & PROT_WRITE))
		mprotect((void *)page, size, usual);
}
