/* slots.h: the slots of a loaded library, in which the loader puts the addresses of functions of
 * other libraries.
 *
 * All of it is called while the loader keeps the library where it is (dl_iterate_phdr).
 */
#ifndef GPU_LEASE_DRIVER_SLOTS_H
#define GPU_LEASE_DRIVER_SLOTS_H

#include <link.h>
#include <stdbool.h>

struct slot {
	const char *name; /* of the function */
	void **place;
	bool at_first_call; /* it may be bound when the function is first called */
};

typedef void slot_function(const struct dl_phdr_info *info, const struct slot *slot, void *data);

/* Calls `see` for each slot of the library. */
void slots_of(const struct dl_phdr_info *info, slot_function *see, void *data);
/* Has the loader not bound it yet? */
bool slot_is_unbound(const struct dl_phdr_info *info, const struct slot *slot);
/* Sets it, even where the library may not write to it; if the process may not do that, it stays. */
void slot_set(const struct dl_phdr_info *info, const struct slot *slot, void *to);

#endif
