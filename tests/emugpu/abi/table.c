/* table.c: the emulated libcuda: cuGetProcAddress and the names of errors.
 *
 * Addresses are our own, taken at link time (-Bsymbolic): a preloaded library
 * that replaces a function must not come back as the driver's.
 */
#include <string.h>

/* The table names symbols, so cuda.h may not rename them here. */
typedef int CUresult_t;
#define F(name, symbol, since) extern char symbol[] __attribute__((visibility("default")));
#define S(name, symbol, per_thread, since)                                                         \
	extern char symbol[] __attribute__((visibility("default")));                               \
	extern char per_thread[] __attribute__((visibility("default")));
#include "abi/table.def"
#undef F
#undef S

#define SUCCESS 0
#define INVALID_VALUE 1
#define NOT_FOUND 500
#define PER_THREAD_SINCE 7000
#define PER_THREAD_FLAG 2 /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */
#define STATUS_SUCCESS 0
#define STATUS_SYMBOL_NOT_FOUND 1
#define STATUS_VERSION_NOT_SUFFICIENT 2
#define EXPORT __attribute__((visibility("default")))

static const struct {
	const char *name;
	void *symbol, *per_thread;
	int since;
} table[] = {
#define F(name, symbol, since) {#name, symbol, symbol, since},
#define S(name, symbol, per_thread, since) {#name, symbol, per_thread, since},
#include "abi/table.def"
};

CUresult_t emu_get_proc_address(const char *name, void **out, int version, unsigned long long flags,
                                int *status);
CUresult_t emu_get_proc_address(const char *name, void **out, int version, unsigned long long flags,
                                int *status)
{
	int found = STATUS_SYMBOL_NOT_FOUND;

	if (!name || !out || flags > 3)
		return INVALID_VALUE;
	*out = NULL;
	for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]) && !*out; i++) {
		if (strcmp(table[i].name, name))
			continue;
		found = STATUS_VERSION_NOT_SUFFICIENT;
		if (version < table[i].since)
			continue;
		if (!(flags & PER_THREAD_FLAG))
			*out = table[i].symbol;
		else if (version >= PER_THREAD_SINCE || table[i].symbol == table[i].per_thread)
			*out = table[i].per_thread;
	}
	if (status)
		*status = *out ? STATUS_SUCCESS : found;
	/* Like the real driver: with somewhere to put the status, a missing symbol is no error. */
	return *out || status ? SUCCESS : NOT_FOUND;
}
