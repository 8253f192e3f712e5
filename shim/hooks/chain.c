/* chain.c: the way of the library of chains to the keeper. */
#include "hooks/chain.h"

#include "base/compiler.h"
#include "lease/keeper.h"
#include "lease/part.h"

EXPORT int gpu_lease_chain_keep(int door)
{
	return keeper_begin(door) ? 0 : -1;
}

EXPORT int gpu_lease_chain_meet(int *end)
{
	return (int)keeper_meet(end);
}

EXPORT void gpu_lease_chain_ask_part(unsigned int *percent, unsigned int *begins)
{
	struct part part = part_ask();

	*percent = part.percent;
	*begins = part.begins;
}
