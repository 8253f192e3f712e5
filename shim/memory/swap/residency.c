/* residency.c: a residency is a time in which all swapped memory is on its devices and stays there.
 */
#include "memory/swap/residency.h"

#include "base/locks.h"
#include "gate/barrier.h"
#include "gate/gate.h"
#include "memory/swap/devices.h"

bool residency_lasts(void)
{
	bool now;

	lock_take(&swap_lock);
	now = all_resident;
	lock_give(&swap_lock);
	return now;
}

bool residency_begin(bool force)
{
	unsigned long missing = 0, moving = 0;
	bool all;

	lock_take(&swap_lock);
	for (int d = 0; d < MAX_DEVICES; d++) {
		missing += swap_devices[d].missing;
		moving += swap_devices[d].moving;
	}
	all = !moving && (!missing || force);
	if (all) {
		all_resident = true;
		atomic_store(&gate_memory, swap_used() ? GATE_MEMORY_HERE : GATE_MEMORY_STAYS);
	}
	lock_give(&swap_lock);
	return all;
}

bool residency_end(void)
{
	lock_take(&swap_lock);
	all_resident = false;
	if (swap_used())
		atomic_store(&gate_memory, GATE_MEMORY_AWAY);
	lock_give(&swap_lock);
	if (swap_used())
		gate_barrier();
	return swap_used();
}
