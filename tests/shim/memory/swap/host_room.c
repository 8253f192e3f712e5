/* host_room.c: prints for each size in MiB whether this process's cgroups allow so much. */
#include "memory/store/cgroup_memory.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		printf("%d ", cgroup_has_memory(strtoull(argv[i], NULL, 10) << 20));
	return 0;
}
