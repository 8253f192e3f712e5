/* lookup.c: finds the functions of the driver and of NVML that ours replace.
 *
 * They are looked up with glibc's own dlsym, since hooks/dlsym.c replaces that one too.
 */
#include "driver/lookup.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

struct hooked hooks[N_HOOKS] = {
#define HOOK(name) [HOOK_##name] = {#name, NULL},
#include "driver/hooks.def"
};

/* -- glibc's own dlsym and dlvsym -------------------------------------------- */

dlsym_function *real_dlsym;
dlvsym_function *real_dlvsym;

/* The tables of a loaded library's dynamic section that a lookup needs. */
struct symbols {
	const ElfW(Sym) * table;
	const char *strings;
	const uint32_t *hash;
	const ElfW(Versym) * versions;
};

static struct symbols symbols_of(const struct dl_phdr_info *info)
{
	struct symbols s = {NULL, NULL, NULL, NULL};
	const ElfW(Dyn) *d = NULL;

	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			d = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	for (; d && d->d_tag != DT_NULL; d++) {
		/* glibc relocates these in place, other loaders do not. */
		ElfW(Addr) at =
		    d->d_un.d_ptr + (d->d_un.d_ptr < info->dlpi_addr ? info->dlpi_addr : 0);

		if (d->d_tag == DT_SYMTAB)
			s.table = (const ElfW(Sym) *)at;
		else if (d->d_tag == DT_STRTAB)
			s.strings = (const char *)at;
		else if (d->d_tag == DT_GNU_HASH)
			s.hash = (const uint32_t *)at;
		else if (d->d_tag == DT_VERSYM)
			s.versions = (const ElfW(Versym) *)at;
	}
	return s;
}

/* The default version of a function in a library, found by the library's GNU hash table (a Bloom
 * filter, then buckets, then chains). */
static void *find_symbol(const struct dl_phdr_info *info, const char *name)
{
	struct symbols s = symbols_of(info);
	const uint32_t *buckets, *chains;
	uint32_t hash = 5381, i;

	if (!s.table || !s.strings || !s.hash)
		return NULL;
	for (const char *c = name; *c; c++)
		hash = hash * 33 + (unsigned char)*c;
	buckets = s.hash + 4 + s.hash[2] * (sizeof(ElfW(Addr)) / 4);
	chains = buckets + s.hash[0];
	for (i = buckets[hash % s.hash[0]]; i >= s.hash[1]; i++) {
		uint32_t found = chains[i - s.hash[1]];
		bool hidden = s.versions && (s.versions[i] & 0x8000);

		if ((found | 1) == (hash | 1) && !hidden && s.table[i].st_shndx != SHN_UNDEF &&
		    !strcmp(s.strings + s.table[i].st_name, name))
			return (void *)(info->dlpi_addr + s.table[i].st_value);
		if (found & 1)
			break;
	}
	return NULL;
}

/* Up to glibc 2.33 both functions are in libdl, since then in libc. musl's loader is its libc, and
 * has no dlvsym. */
static bool has_dlsym(const char *name)
{
	return !strcmp(name, "libc.so.6") || !strcmp(name, "libdl.so.2") ||
	       !strncmp(name, "ld-musl-", 8) || !strncmp(name, "libc.musl-", 10) ||
	       !strcmp(name, "libc.so");
}

/* Called for each loaded library. */
static int look_for_dlsym(struct dl_phdr_info *info, size_t size, void *data)
{
	const char *slash = strrchr(info->dlpi_name, '/');
	const char *name = slash ? slash + 1 : info->dlpi_name;

	(void)size;
	(void)data;
	if (!has_dlsym(name))
		return 0;
	if (!real_dlsym)
		real_dlsym = (dlsym_function *)find_symbol(info, "dlsym");
	if (!real_dlvsym)
		real_dlvsym = (dlvsym_function *)find_symbol(info, "dlvsym");
	return real_dlsym && real_dlvsym;
}

/* It does not use dlopen, which allocates memory: a program's own malloc may be what calls dlsym.
 */
__attribute__((constructor)) void find_dlsym(void)
{
	if (!real_dlsym || !real_dlvsym)
		dl_iterate_phdr(look_for_dlsym, NULL);
}

/* -- the libraries whose functions we replace -------------------------------- */

static struct library {
	const char *name, *prefix;
	_Atomic(void *) handle;
} driver = {"libcuda.so.1", "cu", NULL}, nvml = {"libnvidia-ml.so.1", "nvml", NULL};

static struct library *library_of(const char *name)
{
	return strncmp(name, nvml.prefix, strlen(nvml.prefix)) ? &driver : &nvml;
}

/* The handle of the library, of the copy that the program has loaded if there is one, in whatever
 * scope. With `load` it is loaded otherwise; else the result is NULL. */
static void *library_handle(struct library *library, bool load)
{
	void *handle = atomic_load(&library->handle);

	if (!handle) {
		handle = dlopen(library->name, RTLD_LAZY | RTLD_NOLOAD);
		if (!handle && load)
			handle = dlopen(library->name, RTLD_LAZY);
		if (handle)
			atomic_store(&library->handle, handle);
	}
	return handle;
}

void *real_symbol(const char *name)
{
	void *handle = library_handle(library_of(name), true);

	find_dlsym();
	return handle ? real_dlsym(handle, name) : NULL;
}

void *find_hook(enum hook hook)
{
	void *real = real_symbol(hooks[hook].name);

	atomic_store_explicit(&hooks[hook].real, real, memory_order_release);
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
