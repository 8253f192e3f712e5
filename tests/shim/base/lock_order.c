/* lock_order.c: take locks of the interposer in order, or not, with the check of their order on. */
#include "base/locks.h"

#include <stdio.h>
#include <string.h>

static struct lock outer = LOCK(LOCK_CONTEXTS), inner = LOCK(LOCK_SWAP);
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static void in_order(void)
{
	lock_take(&outer);
	lock_take(&inner);
	lock_give(&outer); /* given in whatever order */
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

static void waits_with_another(void)
{
	lock_take(&outer);
	lock_take(&inner);
	lock_wait(&inner, &condition);
}

static void gives_what_it_has_not(void)
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
	    {"waits with another", waits_with_another},
	    {"gives what it has not", gives_what_it_has_not},
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
