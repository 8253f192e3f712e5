/* pace_flight.c: limits the work in flight while another job waits.
 *
 * A drain takes as long as the work that is in flight when it begins. So while another job waits, a
 * context's queues are given at most in_flight_ns of work: as many calls as finish in that time, by
 * Little's law. This number, the window, follows from the rate of calls, which is measured with
 * events of the whole context, one for every few calls. The window at most doubles from one
 * finished event to the next, so the first guess may be small. Two calls may always be in flight,
 * however long they take: one runs, and the other follows it without a gap.
 */
#include "base/clock.h"
#include "base/fork.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "gate/pace.h"
#include "work/captures.h"
#include "work/contexts.h"

#define MAX_FLIGHTS 16
#define MARKS 16              /* events of one context that can be pending */
#define FIRST_WINDOW 16       /* calls in flight before the rate is known */
#define LAST_WINDOW (1 << 20) /* never more calls in flight */
#define MAX_DRAW 512          /* calls that a thread draws credit for at once */
#define PAUSE_US 50           /* between draws while the rate is unknown */
#define LONG_PAUSE_US 1000    /* between draws once it is known */

/* An event that is recorded behind calls. */
struct mark {
	CUevent event;
	unsigned long calls; /* `submitted` when it was recorded */
	uint64_t begun;      /* when the first call after the previous mark was let in */
};

/* The work of one context. Under the lock. */
static struct flight {
	CUcontext context;
	unsigned int spell; /* in which these figures were begun */
	/* No mark has completed in this spell. The first one tells no rate, since nobody knows what
	 * was in the queues before. */
	bool fresh;
	unsigned long submitted; /* calls that were let in */
	unsigned long marked;    /* of them: those before the last mark */
	unsigned long finished;  /* of them: those before the last mark that has completed */
	unsigned long window;    /* calls that may be in flight */
	uint64_t begun;       /* when the first call since the last mark was let in; 0: none was */
	uint64_t finished_at; /* when a mark was last seen to complete */
	double ns_per_call;   /* 0: unknown */
	struct mark marks[MARKS]; /* a ring of n pending ones, from `first` on */
	unsigned int first, n;
} flights[MAX_FLIGHTS];

static atomic_ulong in_flight_ns; /* the limit; 0: no other job waits */
static atomic_uint spell;         /* counts the times that the limit was set */
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

/* The entry of the context, a new one if need be; NULL if there are too many contexts. */
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

/* The same, made ready for this spell: of an earlier one only the rate and the window are kept. */
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

/* The driver destroys the events together with the context. */
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

/* So many calls have finished by now, of which the first was let in at `begun`: updates the rate
 * and the window. */
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

/* Takes note of the marks that have completed. */
static void note_finished(struct flight *f)
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

/* Records a mark behind the calls that were let in since the last one. */
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

/* How many calls may pass now; 0: the window is full. Marks stand every eighth of a window. */
static int draw_from(struct flight *f)
{
	unsigned long each = f->window / 8 ? f->window / 8 : 1, free;

	note_finished(f);
	if (f->submitted - f->marked >= each)
		put_mark(f);
	if (f->submitted - f->finished >= f->window) {
		if (!f->n)
			put_mark(f);
		if (f->n)
			return 0; /* without any mark nothing would tell when the window has space
			           */
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
		return 1; /* the driver's function will return the error */
	/* Recording or querying an event would invalidate a capture. */
	if (!atomic_load(&in_flight_ns) || !captures_hold_off())
		return 1;
	lock_take(&lock);
	f = flight_of(context);
	drawn = f ? draw_from(f) : 1;
	*pause_us = f && f->ns_per_call > 0 ? LONG_PAUSE_US : PAUSE_US;
	lock_give(&lock);
	captures_let();
	return drawn;
}

const struct pace pace_flight = {.begin = begin, .draw = draw, .end = end};
