/* pace_filter.c: pace_flight.c for a test, over a device in simulated time that executes calls
 * one after the other. Lines in, times in ns:
 *
 *   begin IN_FLIGHT   somebody waits
 *   end               nobody does any more
 *   takes NS          so long each call takes from now on
 *   captures 0|1      a stream captures
 *   draw              a thread draws credit, and submits so many calls; an answer: how many,
 *                     the pause in ns if there were none, and what is in flight now
 *   pass NS           time passes; an answer: for how much of it the device had nothing to do
 */
#include "base/locks.h"
#include "driver/lookup.h"
#include "gate/pace.h"
#include "work/captures.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t now = 1000000000000, takes = 1000000, left; /* of the call that executes */
static unsigned long submitted, executed;
static bool captures;

int clock_gettime(clockid_t clock, struct timespec *t)
{
	(void)clock;
	*t = (struct timespec){(time_t)(now / 1000000000), (long)(now % 1000000000)};
	return 0;
}

/* -- the device ---------------------------------------------------------------- */

static CUresult get_current(CUcontext *context)
{
	*context = (CUcontext)&now;
	return CUDA_SUCCESS;
}

static CUresult create_event(CUevent *event, unsigned int flags)
{
	(void)flags;
	*event = calloc(1, sizeof(unsigned long));
	return CUDA_SUCCESS;
}

static CUresult record(CUcontext context, CUevent event)
{
	(void)context;
	if (captures)
		abort(); /* it would end the capture */
	*(unsigned long *)event = submitted;
	return CUDA_SUCCESS;
}

static CUresult query(CUevent event)
{
	return executed >= *(unsigned long *)event ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

void *real_symbol(const char *name)
{
	static const struct {
		const char *name;
		void *function;
	} known[] = {{"cuCtxGetCurrent", get_current},
	             {"cuEventCreate", create_event},
	             {"cuCtxRecordEvent", record},
	             {"cuEventQuery", query}};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(known[i].name, name))
			return known[i].function;
	abort();
}

bool captures_hold_off(void)
{
	return !captures;
}

void captures_let(void)
{
}

/* -- the lines ----------------------------------------------------------------- */

static void draw(void)
{
	long us = 0;
	int drawn = pace_flight.draw(&us);

	if (drawn && executed == submitted)
		left = takes;
	submitted += (unsigned long)drawn;
	printf("%d %ld %lu\n", drawn, drawn ? 0 : us * 1000, submitted - executed);
}

static void pass(uint64_t ns)
{
	uint64_t idle = 0;

	while (ns && executed < submitted) {
		uint64_t step = left < ns ? left : ns;

		now += step;
		ns -= step;
		left -= step;
		if (!left) {
			executed++;
			left = takes;
		}
	}
	idle = ns;
	now += ns;
	printf("%" PRIu64 "\n", idle);
}

int main(void)
{
	char what[16];
	uint64_t n = 0;

	while (scanf("%15s", what) == 1) {
		if (strcmp(what, "draw") && strcmp(what, "end") && scanf("%" SCNu64, &n) != 1)
			return 1;
		if (!strcmp(what, "begin"))
			pace_flight.begin(n);
		else if (!strcmp(what, "end"))
			pace_flight.end();
		else if (!strcmp(what, "takes"))
			takes = n;
		else if (!strcmp(what, "captures"))
			captures = n;
		else if (!strcmp(what, "draw"))
			draw();
		else
			pass(n);
		fflush(stdout);
	}
	return 0;
}
