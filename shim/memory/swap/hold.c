/* hold.c: whether all swapped memory is on its devices and stays there. */
#include "memory/swap/hold.h"

#include "base/locks.h"
#include "gate/gate.h"
#include "memory/swap/devices.h"

bool swap_holds(void)
{
	bool now;

	lock_take(&swap_lock);
	now = swap_held;
	lock_give(&swap_lock);
	return now;
}

bool swap_hold(bool force)
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
		swap_held = true;
		atomic_store(&gate_memory, swap_used() ? GATE_MEMORY_HERE : GATE_MEMORY_STAYS);
	}
	lock_give(&swap_lock);
	return all;
}

bool swap_let_go(void)
{
	lock_take(&swap_lock);
	swap_held = false;
	if (swap_used())
		atomic_store(&gate_memory, GATE_MEMORY_AWAY);
	lock_give(&swap_lock);
	if (swap_used())
		gate_barrier();
	return swap_used();
}
