/* odd_waits.c: threads that leave the wait for the lease without its end. */
#include "odd.h"

#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>

#define TIMES 4

static sigjmp_buf before_the_call;
static bool by_exit;

static void leave(int signal)
{
	(void)signal;
	if (by_exit)
		pthread_exit(NULL);
	siglongjmp(before_the_call, 1);
}

/* The test takes the lease each time, and gives one that nobody wants any more. */
static void waits(struct other *other)
{
	(void)other;
	if (sigsetjmp(before_the_call, 1)) {
		say("left");
		wait_for_test();
		OK(submit());
		return;
	}
	OK(submit());
	fail("the call did not wait", 0);
}

static void leave_often(void)
{
	struct sigaction action = {.sa_handler = leave, .sa_flags = SA_RESTART};

	sigaction(SIGUSR1, &action, NULL);
	set_up();
	OK(submit());
	for (int i = 0; i < TIMES; i++) {
		struct other other = {0};

		say("submitted");
		wait_for_test();
		start(&other, waits);
		until_waiting(&other);
		pthread_kill(other.thread, SIGUSR1);
		pthread_join(other.thread, NULL);
		say("ended");
		wait_for_test();
		OK(submit());
	}
}

void waits_are_left_by_longjmp(void)
{
	leave_often();
}

void waits_are_left_by_pthread_exit(void)
{
	by_exit = true;
	leave_often();
}

static void does_nothing(int signal)
{
	(void)signal;
}

static void waits_on(struct other *other)
{
	other->result = submit();
}

/* A handler returns into the wait, which goes on. */
void waits_are_interrupted(void)
{
	struct sigaction action = {.sa_handler = does_nothing, .sa_flags = SA_RESTART};
	struct other other = {0};

	sigaction(SIGUSR1, &action, NULL);
	set_up();
	OK(submit());
	say("submitted");
	wait_for_test();
	start(&other, waits_on);
	for (int i = 0; i < TIMES; i++) {
		until_waiting(&other);
		pthread_kill(other.thread, SIGUSR1);
	}
	say("interrupted");
	pthread_join(other.thread, NULL);
	OK(other.result);
}
