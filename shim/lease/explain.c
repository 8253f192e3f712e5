/* explain.c: who waits for anything but its turn hears why, once for each reason.
 *
 * What can be known here (there is no daemon, or it is silent) is said after it has been
 * so for PATIENCE_NS. The rest the daemon knows: it is asked every ASK_NS while somebody
 * waits, and what two answers in succession say is said. So a line comes 5 s after the
 * wait began, and none for what passes by itself in a moment.
 */
#include "lease/explain.h"

#include "base/fork.h"
#include "base/wire.h"

#include <string.h>

#define MS INT64_C(1000000)
#define PATIENCE_NS (5000 * MS)
#define ASK_NS (2500 * MS)

/* Reasons of our own; those of the daemon are their codes. */
#define UNSERVED 62
#define SILENCE 63
#define TURN GL_WAITS_TURN

static struct {
	int reason;     /* why it waits, as far as is known now */
	uint64_t since; /* that it does so for this reason */
	bool waits, can_ask;
	uint64_t asked_at; /* or the wait began; the daemon is asked again after ASK_NS */
	bool unanswered;
	uint64_t said; /* a bit for each reason */
	char words[GL_REASON_BYTES];
} me;

static void set_reason(int reason, uint64_t now)
{
	if (reason == me.reason)
		return;
	me.reason = reason;
	me.since = now;
}

static bool our_own(void)
{
	return me.reason == UNSERVED || me.reason == SILENCE;
}

static int64_t patience_ns(void)
{
	return our_own() ? PATIENCE_NS : ASK_NS;
}

/* Is the reason, whatever it is, one that is still to be said? */
static bool to_be_said(void)
{
	if (!me.waits || me.reason == TURN || me.said >> me.reason & 1)
		return false;
	return our_own() || !me.unanswered;
}

static enum explain_step say(uint64_t now)
{
	if (!to_be_said() || (int64_t)(now - me.since) < patience_ns())
		return EXPLAIN_NOTHING;
	me.said |= UINT64_C(1) << me.reason;
	if (me.reason == UNSERVED)
		return EXPLAIN_UNSERVED;
	return me.reason == SILENCE ? EXPLAIN_SILENCE : EXPLAIN_THE_ANSWER;
}

/* Everything begins anew with a wait, and with a connection. */
static void begin(uint64_t now, int reason)
{
	me.reason = reason;
	me.since = me.asked_at = now;
	me.unanswered = false;
}

static enum explain_step ask(uint64_t now)
{
	if ((int64_t)(now - me.asked_at) < ASK_NS)
		return EXPLAIN_NOTHING;
	if (me.unanswered) {
		set_reason(SILENCE, now);
		return EXPLAIN_NOTHING;
	}
	me.asked_at = now;
	me.unanswered = true;
	return EXPLAIN_ASK;
}

enum explain_step explain_advance(const struct explain_view *view, uint64_t now)
{
	enum explain_step step = EXPLAIN_NOTHING;

	if (view->waits && !me.waits)
		begin(now, view->served ? TURN : UNSERVED);
	me.waits = view->waits;
	me.can_ask = view->served && view->can_ask;
	if (!me.waits)
		return EXPLAIN_NOTHING;
	if (!view->served)
		set_reason(UNSERVED, now);
	else if (me.reason == UNSERVED)
		begin(now, TURN);
	if (me.can_ask)
		step = ask(now);
	return step ? step : say(now);
}

/* Its words count from the first answer of this kind on; a late answer is one as well. */
void explain_answer(const struct gl_waits *waits, uint64_t now)
{
	if (!me.waits || me.reason == UNSERVED)
		return;
	me.unanswered = false;
	set_reason(waits->code < UNSERVED ? (int)waits->code : UNSERVED - 1, now);
	memcpy(me.words, waits->reason, sizeof(me.words));
	me.words[sizeof(me.words) - 1] = '\0';
}

const char *explain_words(void)
{
	return me.words;
}

static int64_t sooner(int64_t one, int64_t other)
{
	return one < 0 || (other >= 0 && other < one) ? other : one;
}

static int64_t left_ns(uint64_t when, uint64_t now)
{
	return when > now ? (int64_t)(when - now) : 0;
}

int64_t explain_pause_ns(uint64_t now)
{
	bool asks = me.can_ask && !(me.unanswered && me.reason == SILENCE);

	if (!me.waits)
		return -1;
	return sooner(asks ? left_ns(me.asked_at + ASK_NS, now) : -1,
	              to_be_said() ? left_ns(me.since + (uint64_t)patience_ns(), now) : -1);
}

static void in_child(void)
{
	memset(&me, 0, sizeof(me));
}
FORK_WATCH(in_child);
