/* in_quiet.c: what is done while no work of the process is under way. */
#include "lease/in_quiet.h"

#include "lease/port.h"

/* During a lease host memory is given up for so long at a time, or for as long as the gate was shut
 * before, until work had finished. Work that takes longer than TIDY_WAIT_NS for that is not waited
 * for: the gate was shut in vain. */
#define TIDY_NS INT64_C(2000000)
#define TIDY_WAIT_NS UINT64_C(20000000)
/* The gate is shut for all that in one part in so many of the time. Each time in vain doubles the
 * pause after it, up to the longest. */
#define TIDY_PART 50
#define TIDY_LONGEST_NS UINT64_C(64000000000)

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

static uint64_t longer(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void pause_tidying(struct lease *lease, uint64_t ns)
{
	lease->tidy_pause_ns = ns < TIDY_LONGEST_NS ? ns : TIDY_LONGEST_NS;
	lease->tidy_at = lease->port->now() + lease->tidy_pause_ns;
}

/* During a lease: see TIDY_NS. */
static void tidy(struct lease *lease)
{
	uint64_t since = lease->closing.since;

	lease->port->mover->give_up_excess((int64_t)longer(lease->port->now() - since, TIDY_NS));
	pause_tidying(lease, TIDY_PART * longer(lease->port->now() - since, TIDY_NS));
}

void in_quiet_do(struct lease *lease)
{
	bool revoked = lease->phase == LEASE_CLOSING && !lease->closing.reopens;

	lease->port->quiet->now();
	if (revoked || in_quiet_tidy_ns(lease)) /* whoever is next does not wait for it */
		return;
	if (lease->phase == LEASE_NONE)
		lease->port->mover->give_up_excess(0);
	else
		tidy(lease);
}

bool in_quiet_gives_up(struct lease *lease, uint64_t passed)
{
	bool vain = passed > TIDY_WAIT_NS && !lease->port->quiet->wanted();

	if (vain)
		pause_tidying(lease, longer(2 * lease->tidy_pause_ns, TIDY_PART * passed));
	return vain;
}
