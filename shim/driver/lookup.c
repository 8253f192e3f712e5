/* lookup.c: finds the functions of the driver and of NVML that ours replace.
 *
 * They are looked up with glibc's own dlopen and dlsym, since hooks/dlsym.c replaces these too.
 */
#include "driver/lookup.h"

#include "driver/elf_tables.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

struct hooked hooks[N_HOOKS] = {
#define HOOK(name) [HOOK_##name] = {#name, NULL},
#include "driver/hooks.def"
};

/* -- glibc's own dlopen, dlsym and dlvsym -------------------------------------
 *
 * They may be looked for before anything else of the program runs: by dlsym a sanitizer finds the
 * functions that it stands in for, among them those that compare strings, and a program's own
 * malloc what it needs. So with glibc no function of another library is called here. */

dlopen_function *real_dlopen;
dlsym_function *real_dlsym;
dlvsym_function *real_dlvsym;

static bool begins(const char *text, const char *with)
{
	while (*with)
		if (*text++ != *with++)
			return false;
	return true;
}

static bool same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

/* The default version of a function in a library, found by the library's GNU hash table (a Bloom
 * filter, then buckets, then chains). */
static void *find_symbol(struct elf_library library, const char *name)
{
	const ElfW(Sym) *table = elf_table(library, DT_SYMTAB);
	const char *strings = elf_table(library, DT_STRTAB);
	const uint32_t *gnu_hash = elf_table(library, DT_GNU_HASH);
	const ElfW(Versym) *versions = elf_table(library, DT_VERSYM);
	const uint32_t *buckets, *chains;
	uint32_t hash = 5381, i;

	if (!table || !strings || !gnu_hash)
		return NULL;
	for (const char *c = name; *c; c++)
		hash = hash * 33 + (unsigned char)*c;
	buckets = gnu_hash + 4 + gnu_hash[2] * (sizeof(ElfW(Addr)) / 4);
	chains = buckets + gnu_hash[0];
	for (i = buckets[hash % gnu_hash[0]]; i >= gnu_hash[1]; i++) {
		uint32_t found = chains[i - gnu_hash[1]];
		bool hidden = versions && (versions[i] & 0x8000);

		if ((found | 1) == (hash | 1) && !hidden && table[i].st_shndx != SHN_UNDEF &&
		    same(strings + table[i].st_name, name))
			return (void *)(library.base + table[i].st_value);
		if (found & 1)
			break;
	}
	return NULL;
}

/* Up to glibc 2.33 these functions are in libdl, since then in libc. musl's loader is its libc, and
 * has no dlvsym. */
static bool has_dlsym(const char *path)
{
	const char *name = path;

	for (const char *c = path; *c; c++)
		if (*c == '/')
			name = c + 1;
	return same(name, "libc.so.6") || same(name, "libdl.so.2") || begins(name, "ld-musl-") ||
	       begins(name, "libc.musl-") || same(name, "libc.so");
}

static bool all_found(void)
{
	return real_dlopen && real_dlsym && real_dlvsym;
}

/* Called for each loaded library. */
static void look_into(const char *path, struct elf_library library)
{
	if (!has_dlsym(path))
		return;
	if (!real_dlopen)
		real_dlopen = (dlopen_function *)find_symbol(library, "dlopen");
	if (!real_dlsym)
		real_dlsym = (dlsym_function *)find_symbol(library, "dlsym");
	if (!real_dlvsym)
		real_dlvsym = (dlvsym_function *)find_symbol(library, "dlvsym");
}

static int look_for_dlsym(struct dl_phdr_info *info, size_t size, void *data)
{
	(void)size;
	(void)data;
	look_into(info->dlpi_name, elf_library(info));
	return all_found();
}

/* glibc's list of libraries; musl has no such symbol. */
#pragma weak _r_debug

__attribute__((constructor)) void find_dlsym(void)
{
	if (all_found())
		return;
	if (!&_r_debug) {
		dl_iterate_phdr(look_for_dlsym, NULL);
		return;
	}
	for (struct link_map *map = _r_debug.r_map; map && !all_found(); map = map->l_next)
		look_into(map->l_name, (struct elf_library){map->l_addr, map->l_ld});
}

/* -- the libraries whose functions we replace -------------------------------- */

static struct library {
	const char *name;
	_Atomic(void *) handle;
} driver = {"libcuda.so.1", NULL}, nvml = {"libnvidia-ml.so.1", NULL};

/* A function of the driver begins with "cu", one of NVML with "nvml". */
static struct library *library_of(const char *function)
{
	return function[0] == 'n' ? &nvml : &driver;
}

static void tell_loaded(const struct library *library, void *handle)
{
	if (library == &driver)
		for_each_watch(driver_watches, watch) (*watch)(handle);
}

/* The handle of the library, of the copy that the program has loaded if there is one, in whatever
 * scope. With `load` it is loaded otherwise; else the result is NULL. */
static void *library_handle(struct library *library, bool load)
{
	void *handle = atomic_load(&library->handle);

	find_dlsym();
	if (!handle && real_dlopen) {
		handle = real_dlopen(library->name, RTLD_LAZY | RTLD_NOLOAD);
		if (!handle && load)
			handle = real_dlopen(library->name, RTLD_LAZY);
		if (handle) {
			tell_loaded(library, handle);
			atomic_store(&library->handle, handle);
		}
	}
	return handle;
}

void *real_symbol(const char *name)
{
	void *handle = library_handle(library_of(name), true);

	return handle ? real_dlsym(handle, name) : NULL;
}

/* The library has been asked for it and has none. */
static atomic_bool lacking[N_HOOKS];

void *find_hook(enum hook hook)
{
	const char *name = hooks[hook].name;
	void *handle, *real;

	if (atomic_load_explicit(&lacking[hook], memory_order_relaxed))
		return NULL;
	handle = library_handle(library_of(name), true);
	real = handle ? real_dlsym(handle, name) : NULL;
	if (real)
		atomic_store_explicit(&hooks[hook].real, real, memory_order_release);
	else if (handle)
		atomic_store_explicit(&lacking[hook], true, memory_order_relaxed);
	return real;
}

bool hook_is_of_driver(enum hook hook)
{
	return library_of(hooks[hook].name) == &driver;
}

void *library_loaded(const char *name)
{
	return library_handle(library_of(name), false);
}

static int find_driver(struct dl_phdr_info *info, size_t size, void *found)
{
	const char *name = info->dlpi_name;

	(void)size;
	for (const char *c = name; *c; c++)
		if (*c == '/')
			name = c + 1;
	*(bool *)found |= same(name, driver.name);
	return *(bool *)found;
}

/* A program that is linked with the library may call it before it calls a function of ours. */
__attribute__((constructor)) static void look_for_driver(void)
{
	bool found = false;

	dl_iterate_phdr(find_driver, &found);
	if (found)
		library_handle(&driver, false);
}
