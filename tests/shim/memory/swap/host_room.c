/* host_room.c: says of each size in MiB whether there is room for it in this process' cgroups. */
#include "memory/swap/hostroom.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		printf("%d ", host_has_room(strtoull(argv[i], NULL, 10) << 20));
	return 0;
}
