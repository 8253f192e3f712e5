/* in_quiet.c: what waits for all work of the process, and is done when there is none. */
#include "lease/in_quiet.h"

#include "lease/port.h"

#define TIDY_NS INT64_C(20000000) /* of a lease, for giving up host memory, */
#define TIDY_EVERY_NS UINT64_C(1000000000)

int64_t in_quiet_tidy_ns(const struct lease *lease)
{
	uint64_t passed;

	if (!lease->port->mover->has_excess())
		return -1;
	passed = lease->port->now() - lease->tidied_at;
	if (lease->phase == LEASE_NONE || !lease->tidied_at || passed >= TIDY_EVERY_NS)
		return 0;
	return (int64_t)(TIDY_EVERY_NS - passed);
}

bool in_quiet_wanted(const struct lease *lease)
{
	return lease->port->quiet->wanted() || in_quiet_tidy_ns(lease) == 0;
}

void in_quiet_do(struct lease *lease)
{
	lease->port->quiet->now();
	if (in_quiet_tidy_ns(lease))
		return;
	lease->port->mover->give_up_excess(lease->phase == LEASE_NONE ? 0 : TIDY_NS);
	if (lease->phase != LEASE_NONE)
		lease->tidied_at = lease->port->now();
}
