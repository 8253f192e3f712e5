/* explain_filter.c: explain.c for a test. Lines "advance NOW WAITS SERVED",
 * "answer NOW CODE WORD" and "forget NOW", in ns; an answer to each "advance": the step and the
 * pause. */
#include "lease/explain.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void advance(uint64_t now)
{
	static const char *names[] = {"nothing", "ask", "unserved", "silence", "answer"};
	int waits, served;
	enum explain_step step;

	if (scanf("%d %d", &waits, &served) != 2)
		return;
	step = explain_advance(&(struct explain_view){waits, served}, now);
	printf("%s %" PRId64 " %s\n", names[step], explain_pause_ns(now),
	       step == EXPLAIN_THE_ANSWER ? explain_words() : "-");
	fflush(stdout);
}

int main(void)
{
	struct gl_waits answer = {.code = 0};
	char what[8], word[GL_REASON_BYTES];
	uint64_t now;

	while (scanf("%7s %" SCNu64, what, &now) == 2) {
		if (what[1] == 'd') {
			advance(now);
		} else if (what[0] == 'f') {
			explain_forget_daemon(now);
		} else if (scanf("%" SCNu32 " %239s", &answer.code, word) == 2) {
			memcpy(answer.reason, word, sizeof(answer.reason));
			explain_answer(&answer, now);
		}
	}
	return 0;
}
