/* pace_flight.c: only so much work is in flight while somebody waits.
 *
 * A drain takes as long as what was submitted before it. So while somebody
 * waits, no more than so many ms of work are let into a context's queues: as
 * many calls as finished in that time, by Little's law. The rate is measured
 * with events of the whole context, one for every few calls, and the number of
 * calls at most doubles from one finished event to the next, so the first guess
 * may be small. Threads draw credit for several calls at once; then a call
 * costs them no lock. Two calls are always let in, however long they are: one
 * runs, one follows it without a gap.
 */
#include "base/clock.h"
#include "base/fork.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "gate/pace.h"
#include "work/captures.h"
#include "work/contexts.h"

#define MAX_FLIGHTS 16
#define MARKS 16
#define FIRST_WINDOW 16
#define LAST_WINDOW (1 << 20)
#define MAX_DRAW 512
#define PAUSE_US 50
#define LONG_PAUSE_US 1000

/* An event behind `calls` calls in all; the first of those since the mark before was at `begun`. */
struct mark {
	CUevent event;
	unsigned long calls;
	uint64_t begun;
};

/* One context. submitted: calls let in; finished: those behind the last event that has happened.
 * fresh: no event has happened yet since somebody waits; what was in the queues is not known. */
static struct flight {
	CUcontext context;
	unsigned int spell;
	bool fresh;
	unsigned long submitted, marked, finished, window;
	uint64_t begun, finished_at;
	double ns_per_call;
	struct mark marks[MARKS];
	unsigned int first, n;
} flights[MAX_FLIGHTS];

static atomic_ulong in_flight_ns; /* 0: nobody waits */
static atomic_uint spell;         /* grows each time that somebody begins to wait */
static struct lock lock = LOCK(LOCK_FLIGHTS);

static void begin(uint64_t ns)
{
	atomic_store(&in_flight_ns, ns);
	atomic_fetch_add(&spell, 1);
}

static void end(void)
{
	atomic_store(&in_flight_ns, 0);
}

static struct flight *find_flight(CUcontext context)
{
	struct flight *unused = NULL;

	for (int i = 0; i < MAX_FLIGHTS; i++) {
		if (flights[i].context == context)
			return &flights[i];
		if (!flights[i].context)
			unused = &flights[i];
	}
	if (unused) {
		unused->context = context;
		unused->window = FIRST_WINDOW;
	}
	return unused;
}

/* Of an earlier spell the rate stays, and nothing else. */
static struct flight *flight_of(CUcontext context)
{
	struct flight *f = find_flight(context);

	if (f && f->spell != atomic_load(&spell)) {
		f->spell = atomic_load(&spell);
		f->fresh = true;
		f->n = 0;
		f->begun = 0;
		f->finished = f->marked = f->submitted;
	}
	return f;
}

/* The events go with the context. */
static void forget(CUcontext context)
{
	lock_take(&lock);
	for (int i = 0; i < MAX_FLIGHTS; i++)
		if (flights[i].context == context)
			flights[i] = (struct flight){0};
	lock_give(&lock);
}

static void in_child(void)
{
	lock_after_fork(&lock);
	for (int i = 0; i < MAX_FLIGHTS; i++)
		flights[i] = (struct flight){0};
}
FORK_WATCH(in_child);
CONTEXT_WATCH(forget, NULL);

static void learn(struct flight *f, unsigned long calls, uint64_t begun, uint64_t now)
{
	uint64_t start = begun > f->finished_at ? begun : f->finished_at;
	double ns = (double)(now - start) / (double)calls, window;

	f->ns_per_call = f->ns_per_call > 0 ? (f->ns_per_call + ns) / 2 : ns;
	window = (double)atomic_load(&in_flight_ns) / (f->ns_per_call > 1 ? f->ns_per_call : 1);
	if (window > 2.0 * (double)f->window)
		window = 2.0 * (double)f->window;
	f->window = window < 2 ? 2 : window > LAST_WINDOW ? LAST_WINDOW : (unsigned long)window;
}

/* Take note of the events that have happened. */
static void settle(struct flight *f)
{
	unsigned long before = f->finished;
	uint64_t begun = 0;

	while (f->n && REAL(cuEventQuery)(f->marks[f->first].event) == CUDA_SUCCESS) {
		struct mark *mark = &f->marks[f->first];

		begun = begun ? begun : mark->begun;
		f->finished = mark->calls;
		f->first = (f->first + 1) % MARKS;
		f->n--;
	}
	if (f->finished > before) {
		uint64_t now = now_ns();

		if (!f->fresh)
			learn(f, f->finished - before, begun, now);
		f->fresh = false;
		f->finished_at = now;
	}
}

static void put_mark(struct flight *f)
{
	struct mark *mark = &f->marks[(f->first + f->n) % MARKS];

	if (f->n == MARKS || f->submitted == f->marked)
		return;
	if (!mark->event && REAL(cuEventCreate)(&mark->event, CU_EVENT_DISABLE_TIMING))
		return;
	if (!REAL(cuCtxRecordEvent) || REAL(cuCtxRecordEvent)(f->context, mark->event))
		return;
	mark->calls = f->marked = f->submitted;
	mark->begun = f->begun;
	f->begun = 0;
	f->n++;
}

/* How many calls may pass now; 0: the window is full. */
static int take(struct flight *f)
{
	unsigned long each = f->window / 8 ? f->window / 8 : 1, free;

	settle(f);
	if (f->submitted - f->marked >= each)
		put_mark(f);
	if (f->submitted - f->finished >= f->window) {
		if (!f->n)
			put_mark(f);
		if (f->n)
			return 0; /* else nobody could say when there is room */
	}
	if (!f->begun)
		f->begun = now_ns();
	free = f->window - (f->submitted - f->finished);
	each = each < MAX_DRAW ? each : MAX_DRAW;
	each = each < free ? each : free;
	f->submitted += each;
	return (int)each;
}

static int draw(long *pause_us)
{
	struct flight *f;
	CUcontext context;
	int drawn;

	if (REAL(cuCtxGetCurrent)(&context) || !context)
		return 1; /* the driver will say what is wrong */
	/* Neither an event nor a query may fall into a capture. */
	if (!atomic_load(&in_flight_ns) || !captures_hold_off())
		return 1;
	lock_take(&lock);
	f = flight_of(context);
	drawn = f ? take(f) : 1;
	*pause_us = f && f->ns_per_call > 0 ? LONG_PAUSE_US : PAUSE_US;
	lock_give(&lock);
	captures_let();
	return drawn;
}

const struct pace pace_flight = {.begin = begin, .draw = draw, .end = end};
