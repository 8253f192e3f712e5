/* lock_order.c: takes locks of the interposer in their order, or against it as the argument says.
 * It is built with the check of the order (GPU_LEASE_CHECK_LOCKS). */
#include "base/locks.h"

#include <stdio.h>
#include <string.h>

static struct lock outer = LOCK(LOCK_CONTEXTS), inner = LOCK(LOCK_SWAP);
static struct lock imports = LOCK(LOCK_IMPORTS);
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static void in_order(void)
{
	lock_take(&outer);
	lock_take(&inner);
	lock_give(&outer); /* any order of releasing is right */
	lock_give(&inner);
	lock_take(&inner);
	lock_give(&inner);
	lock_take(&outer);
	lock_give(&outer);
}

static void inverted(void)
{
	lock_take(&inner);
	lock_take(&outer);
}

static void twice(void)
{
	lock_take(&inner);
	lock_take(&inner);
}

static void twice_imports(void)
{
	lock_take(&imports);
	lock_take(&imports);
}

static void waits_with_another(void)
{
	lock_take(&outer);
	lock_take(&inner);
	lock_wait(&inner, &condition);
}

static void releases_what_it_does_not_hold(void)
{
	lock_take(&outer);
	pthread_mutex_lock(&inner.mutex);
	lock_give(&inner);
}

int main(int n, char **arguments)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} ways[] = {
	    {"in order", in_order},
	    {"inverted", inverted},
	    {"twice", twice},
	    {"twice, imports", twice_imports},
	    {"waits with another", waits_with_another},
	    {"releases what it does not hold", releases_what_it_does_not_hold},
	};

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		if (n == 2 && !strcmp(ways[i].name, arguments[1])) {
			ways[i].run();
			printf("done\n");
			return 0;
		}
	}
	return 2;
}
