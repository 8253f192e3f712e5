/* in_quiet.c: what is done while no work of the process is under way. */
#include "lease/in_quiet.h"

#include "lease/port.h"

/* Of a lease, for giving up host memory, and after the gate was shut for so long in vain. */
#define TIDY_NS INT64_C(20000000)
#define TIDY_WAIT_NS UINT64_C(100000000)
/* Between two times. Each in vain doubles it, up to the longest. */
#define TIDY_PAUSE_NS UINT64_C(1000000000)
#define TIDY_LONGEST_NS (64 * TIDY_PAUSE_NS)

int64_t in_quiet_tidy_ns(const struct lease *lease)
{
	uint64_t now;

	if (!lease->port->mover->has_excess())
		return -1;
	if (lease->phase == LEASE_NONE)
		return 0;
	now = lease->port->now();
	return lease->tidy_at > now ? (int64_t)(lease->tidy_at - now) : 0;
}

bool in_quiet_wanted(const struct lease *lease)
{
	return lease->port->quiet->wanted() || in_quiet_tidy_ns(lease) == 0;
}

static void pause_tidying(struct lease *lease, uint64_t ns)
{
	lease->tidy_pause_ns = ns < TIDY_LONGEST_NS ? ns : TIDY_LONGEST_NS;
	lease->tidy_at = lease->port->now() + lease->tidy_pause_ns;
}

void in_quiet_do(struct lease *lease)
{
	bool revoked = lease->phase == LEASE_CLOSING && !lease->closing.reopens;

	lease->port->quiet->now();
	if (revoked || in_quiet_tidy_ns(lease)) /* whoever is next does not wait for it */
		return;
	lease->port->mover->give_up_excess(lease->phase == LEASE_NONE ? 0 : TIDY_NS);
	if (lease->phase != LEASE_NONE)
		pause_tidying(lease, TIDY_PAUSE_NS);
}

bool in_quiet_gives_up(struct lease *lease, uint64_t passed)
{
	bool vain = passed > TIDY_WAIT_NS && !lease->port->quiet->wanted();
	uint64_t pause = lease->tidy_pause_ns ? lease->tidy_pause_ns : TIDY_PAUSE_NS;

	if (vain)
		pause_tidying(lease, 2 * pause);
	return vain;
}
