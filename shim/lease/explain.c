/* explain.c: tells a user why a process waits, once for each reason other than its turn.
 *
 * That there is no daemon, or that it is silent, is known here and is told after PATIENCE_NS or
 * SILENCE_NS. Other reasons only the daemon knows: it is asked every ASK_NS while a thread waits,
 * and a reason is told when two answers in a row have had it. So a message comes 5 s after the wait
 * began, and none about a trouble that passes in a moment.
 *
 * Connections stay while systemd starts the daemon anew, so a restart or an update of a busy node
 * looks like silence. A daemon that hangs is started anew by systemd too, after 20 s. Nobody has to
 * be asked for help before that is over.
 */
#include "lease/explain.h"

#include "base/fork.h"
#include "base/wire.h"

#include <string.h>

#define MS INT64_C(1000000)
#ifndef ASK_NS /* tests have an interposer that is less patient */
#define ASK_NS (2500 * MS)
#endif
#define PATIENCE_NS (2 * ASK_NS)
#define SILENCE_NS (12 * ASK_NS)

/* A reason is a code of the daemon (enum gl_waits_code, below 62) or one of these. */
#define UNSERVED 62
#define SILENCE 63
#define TURN GL_WAITS_TURN

static struct {
	int reason;                  /* why the process waits, as far as is known */
	uint64_t since;              /* when that became the reason, ns */
	bool waits, served;          /* as in explain_view */
	uint64_t asked_at;           /* when GL_WHY was last sent, or the wait began */
	bool unanswered;             /* no answer to that has come */
	uint64_t said;               /* a bit for each reason that the user has been told */
	char words[GL_REASON_BYTES]; /* the daemon's last answer */
} wait_state;

static void set_reason(int reason, uint64_t now)
{
	if (reason == wait_state.reason)
		return;
	wait_state.reason = reason;
	wait_state.since = now;
}

/* Is the reason one that is known without the daemon? */
static bool our_own(void)
{
	return wait_state.reason == UNSERVED || wait_state.reason == SILENCE;
}

static int64_t patience_ns(void)
{
	if (wait_state.reason == SILENCE)
		return SILENCE_NS;
	return wait_state.reason == UNSERVED ? PATIENCE_NS : ASK_NS;
}

/* Has the user still to be told of the present reason? */
static bool to_be_said(void)
{
	if (!wait_state.waits || wait_state.reason == TURN ||
	    wait_state.said >> wait_state.reason & 1)
		return false;
	return our_own() || !wait_state.unanswered;
}

static enum explain_step say(uint64_t now)
{
	if (!to_be_said() || (int64_t)(now - wait_state.since) < patience_ns())
		return EXPLAIN_NOTHING;
	wait_state.said |= UINT64_C(1) << wait_state.reason;
	if (wait_state.reason == UNSERVED)
		return EXPLAIN_UNSERVED;
	return wait_state.reason == SILENCE ? EXPLAIN_SILENCE : EXPLAIN_THE_ANSWER;
}

/* A wait begins, or a connection during a wait: nothing is known but this reason. */
static void begin(uint64_t now, int reason)
{
	wait_state.reason = reason;
	wait_state.since = wait_state.asked_at = now;
	wait_state.unanswered = false;
}

static enum explain_step ask(uint64_t now)
{
	if ((int64_t)(now - wait_state.asked_at) < ASK_NS)
		return EXPLAIN_NOTHING;
	if (wait_state.unanswered) {
		set_reason(SILENCE, now);
		return EXPLAIN_NOTHING;
	}
	wait_state.asked_at = now;
	wait_state.unanswered = true;
	return EXPLAIN_ASK;
}

enum explain_step explain_advance(const struct explain_view *view, uint64_t now)
{
	enum explain_step step = EXPLAIN_NOTHING;

	if (view->waits && !wait_state.waits)
		begin(now, view->served ? TURN : UNSERVED);
	wait_state.waits = view->waits;
	wait_state.served = view->served;
	if (!wait_state.waits)
		return EXPLAIN_NOTHING;
	if (!view->served)
		set_reason(UNSERVED, now);
	else if (wait_state.reason == UNSERVED)
		begin(now, TURN);
	if (view->served)
		step = ask(now);
	return step ? step : say(now);
}

/* The reason is as old as the first answer in a row that had its code. A late answer counts too. */
void explain_answer(const struct gl_waits *waits, uint64_t now)
{
	if (!wait_state.waits || wait_state.reason == UNSERVED)
		return;
	wait_state.unanswered = false;
	set_reason(waits->code < UNSERVED ? (int)waits->code : UNSERVED - 1, now);
	memcpy(wait_state.words, waits->reason, sizeof(wait_state.words));
	wait_state.words[sizeof(wait_state.words) - 1] = '\0';
}

void explain_forget_daemon(uint64_t now)
{
	if (wait_state.waits && wait_state.reason != UNSERVED)
		begin(now, TURN);
}

const char *explain_words(void)
{
	return wait_state.words;
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
	bool asks = wait_state.served && !(wait_state.unanswered && wait_state.reason == SILENCE);

	if (!wait_state.waits)
		return -1;
	return sooner(asks ? left_ns(wait_state.asked_at + ASK_NS, now) : -1,
	              to_be_said() ? left_ns(wait_state.since + (uint64_t)patience_ns(), now) : -1);
}

static void in_child(void)
{
	memset(&wait_state, 0, sizeof(wait_state));
}
FORK_WATCH(in_child);
