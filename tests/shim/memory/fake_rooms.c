/* fake_rooms.c: fakes of the rooms that shim/memory calls. */
#include "fake_rooms.h"
#include "base/debug.h"
#include "base/process.h"
#include "channels/channels.h"
#include "fake_driver.h"
#include "gate/barrier.h"
#include "gate/gate.h"
#include "gate/quiet.h"
#include "gate/waiting.h"
#include "memory/changes.h"
#include "work/captures.h"
#include "work/contexts.h"

#include <stdarg.h>
#include <stdio.h>

struct fake_rooms fake_rooms = {.limit = FAKE_CAPACITY};
atomic_bool process_ends;
atomic_int gate_memory = GATE_MEMORY_STAYS;

/* -- channel groups -------------------------------------------------------------------- */

CUresult gate_enter_unless_stopped(void)
{
	return CUDA_SUCCESS;
}

enum stop_phase channels_stop_phase(void)
{
	return fake_rooms.stopped ? STOP_IS : STOP_NONE;
}

unsigned int channels_list_copies(const uint8_t uuid[16], struct copy_channel *list,
                                  unsigned int most)
{
	(void)uuid;
	(void)list;
	(void)most;
	return 0;
}

void channels_freeze_copies(const uint8_t uuid[16], const struct copy_channel *list, unsigned int n,
                            bool listed)
{
	(void)uuid;
	(void)list;
	(void)n;
	(void)listed;
}

void channels_renew(uint64_t ns)
{
	(void)ns;
}

bool channels_settle(long us)
{
	(void)us;
	return true;
}

/* -- the tenant ---------------------------------------------------------------------- */

CUresult tenant_wait(void)
{
	return CUDA_SUCCESS;
}

void client_wake(void)
{
}

/* No other job has memory that could be evicted. */
CUresult gate_wait(bool memory)
{
	(void)memory;
	return CUDA_ERROR_NOT_PERMITTED;
}

uint64_t tenant_limit(const uint8_t uuid[16])
{
	(void)uuid;
	return fake_rooms.limit;
}

uint64_t tenant_others(const uint8_t uuid[16])
{
	(void)uuid;
	return fake_rooms.others;
}

bool tenant_oversubscribes(void)
{
	return fake_rooms.oversub;
}

bool tenant_swaps(void)
{
	return fake_rooms.swaps;
}

bool tenant_cleans(void)
{
	return fake_rooms.cleans;
}

static void note_change(void)
{
	atomic_fetch_add(&fake_rooms.changes, 1);
}
MEMORY_WATCH(note_change);

/* -- the gate --------------------------------------------------------------------------- */

CUresult gate_enter_for_memory(void)
{
	return CUDA_SUCCESS;
}

void gate_leave(void)
{
}

bool gate_empty(void)
{
	return true;
}

void gate_barrier(void)
{
}

unsigned long gate_submitted(void)
{
	return fake_rooms.submitted;
}

CUresult quiet_do(void (*work)(void *argument), void *argument)
{
	work(argument);
	return CUDA_SUCCESS;
}

/* -- contexts and captures -------------------------------------------------------------------- */

bool contexts_exist(void)
{
	return true;
}

bool contexts_with(CUdevice device, CUcontext preferred,
                   void (*work)(CUcontext context, void *argument), void *argument)
{
	CUcontext before = fake_driver.current, chosen = fake_context(device);

	if (fake_rooms.no_context)
		return false;
	if (preferred == fake_second_context(device))
		chosen = preferred;
	fake_driver.current = chosen;
	work(chosen, argument);
	fake_driver.current = before;
	return true;
}

void context_run_in(CUcontext context, void (*work)(CUcontext context))
{
	CUcontext before = fake_driver.current;

	fake_driver.current = context;
	work(context);
	fake_driver.current = before;
}

bool stream_captures(CUstream stream)
{
	(void)stream;
	return false;
}

bool captures_exist(void)
{
	return false;
}

CUstreamCaptureMode captures_mode(CUstreamCaptureMode mode)
{
	CUstreamCaptureMode before = fake_driver.mode;

	fake_driver.mode = mode;
	return before;
}

bool captures_hold_off(void)
{
	return true;
}

void captures_let(void)
{
}

void fake_context_ends(CUcontext context)
{
	fake_rooms.waits = true; /* the program's thread does */
	for_each_watch(context_watches, watch) if ((*watch)->ends)(*watch)->ends(context);
	fake_rooms.waits = false;
}

void fake_context_gone(CUcontext context)
{
	for_each_watch(context_watches, watch) if ((*watch)->gone)(*watch)->gone(context);
}

/* -- messages ---------------------------------------------------------------------------------- */

void debug(const char *format, ...)
{
	(void)format;
}

void complain(const char *format, ...)
{
	va_list arguments;

	fake_rooms.complaints++;
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}
