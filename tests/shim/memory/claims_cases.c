/* claims_cases.c: claims of several threads (shim/memory/claims.c) whose answers cross what else
 * the process says, with a fake daemon.
 *
 * claims_cases: prints the cases, one on each line. claims_cases CASE: runs one.
 */
#include "base/debug.h"
#include "base/locks.h"
#include "driver/devices.h"
#include "gate/waiting.h"
#include "memory/claims.h"
#include "memory/used.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                    \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
#define LIMIT UINT64_C(6400) /* a step is 100 bytes */
#define PATIENCE_S 60

static uint8_t uuid[GL_UUID_BYTES] = {1};
static uint64_t has;          /* bytes that the daemon believes the process may have */
static _Atomic uint64_t used; /* bytes that the process has */
static atomic_int waiting;    /* threads that wait for the daemon, or for one another */

void client_wake(void)
{
}

const uint8_t *device_uuid(CUdevice device)
{
	(void)device;
	return uuid;
}

uint64_t memory_used(CUdevice device)
{
	(void)device;
	return atomic_load(&used);
}

void complain(const char *format, ...)
{
	(void)format;
}

void lock_take(struct lock *lock)
{
	pthread_mutex_lock(&lock->mutex);
}

void lock_give(struct lock *lock)
{
	pthread_mutex_unlock(&lock->mutex);
}

void lock_wait(struct lock *lock, pthread_cond_t *condition)
{
	atomic_fetch_add(&waiting, 1);
	pthread_cond_wait(condition, &lock->mutex);
	atomic_fetch_sub(&waiting, 1);
}

void lock_after_fork(struct lock *lock)
{
	(void)lock;
}

/* -- the client thread, and the daemon ---------------------------------------------------- */

/* The next claim, which the daemon grants whatever it is; its answer has not come yet. */
static struct gl_claim hear(void)
{
	struct gl_claim claim;

	while (!claims_next_message(&claim))
		usleep(100);
	has = claim.bytes;
	return claim;
}

static void answer(const struct gl_claim *claim)
{
	struct gl_claimed granted = {
	    .code = GL_CLAIM_GRANTED, .number = claim->number, .bytes = claim->bytes};

	claims_answer(&granted);
}

/* It has to wait. */
static void wait_for(const struct gl_claim *claim)
{
	struct gl_claimed waits = {.code = GL_CLAIM_WAITS, .number = claim->number};

	claims_answer(&waits);
}

static void hear_rest(void)
{
	struct gl_claim claim;

	while (claims_next_message(&claim)) {
		has = claim.bytes;
		answer(&claim);
	}
}

/* -- threads of the program ---------------------------------------------------------------- */

static void *cover(void *nothing)
{
	CHECK(claim_cover(0, LIMIT) == CUDA_SUCCESS);
	return nothing;
}

/* A thread that allocates, so that the process has so many bytes. */
static pthread_t begin(uint64_t bytes)
{
	pthread_t thread;

	atomic_store(&used, bytes);
	CHECK(!pthread_create(&thread, NULL, cover, NULL));
	return thread;
}

/* The process has freed memory, and has so many bytes left. */
static void leave(uint64_t bytes)
{
	atomic_store(&used, bytes);
	claim_freed(0);
}

static void end(pthread_t thread)
{
	pthread_join(thread, NULL);
}

/* The process claims nothing up to so many bytes, since it believes that it has been granted them;
 * the daemon must believe so too. */
static void check_covered(uint64_t bytes)
{
	struct gl_claim none;

	atomic_store(&used, bytes);
	cover(NULL);
	CHECK(!claims_next_message(&none));
	CHECK(has >= bytes);
}

/* A claim larger than what the process has been granted. */
static pthread_t begin_more(void)
{
	pthread_t first;

	claims_offered(true);
	first = begin(1000);
	struct gl_claim claim = hear();
	answer(&claim);
	end(first);
	return begin(2000);
}

/* -- the cases ----------------------------------------------------------------------------- */

static void a_little_that_is_freed_while_a_claim_is_under_way_changes_nothing(void)
{
	pthread_t more = begin_more();
	struct gl_claim claim = hear();

	leave(1950);
	hear_rest();
	answer(&claim);
	end(more);
	hear_rest();
	check_covered(2000);
}

/* The claim may be waiting for what the process itself no longer needs. */
static void much_that_is_freed_while_a_claim_is_under_way_makes_it_smaller(void)
{
	pthread_t more = begin_more();
	struct gl_claim first = hear(), second;

	leave(550);
	second = hear();
	CHECK(second.number != first.number && second.bytes == 600 && second.least == 550);
	answer(&first); /* the daemon had granted it before it heard of the second one */
	answer(&second);
	end(more);
	hear_rest();
	check_covered(600);
	more = begin(650);
	second = hear();
	CHECK(second.least == 650);
	answer(&second);
	end(more);
}

/* Before the smaller claim is answered, another thread allocates what had been granted before. */
static void a_thread_that_allocates_meanwhile_waits_for_the_smaller_claim(void)
{
	pthread_t more = begin_more(), other;
	struct gl_claim claim = hear();

	leave(550);
	claim = hear();
	other = begin(900);
	while (atomic_load(&waiting) < 2)
		usleep(100);
	answer(&claim);
	end(more);
	claim = hear();
	CHECK(claim.least == 900);
	answer(&claim);
	end(other);
	check_covered(900);
}

static void what_is_freed_after_that_is_told(void)
{
	pthread_t more = begin_more();
	struct gl_claim claim = hear();

	answer(&claim);
	end(more);
	leave(100);
	hear_rest();
	CHECK(has == 200);
}

static void of_a_process_that_has_moved_it_is_told_of_the_new_gpu(void)
{
	pthread_t more = begin_more();
	struct gl_claim claim = hear();

	answer(&claim);
	end(more);
	uuid[0] = 2;
	leave(100);
	claim = hear();
	CHECK(claim.uuid[0] == 2 && claim.bytes == 200);
}

/* Each counts what the one before has claimed; the daemon believes what it has heard last. */
static void of_two_threads_the_larger_claim_counts(void)
{
	struct gl_claim claim;
	pthread_t threads[2];

	claims_offered(true);
	for (int i = 0; i < 2; i++) {
		threads[i] = begin(1000 * (uint64_t)(i + 1));
		while (atomic_load(&waiting) <= i)
			usleep(100);
	}
	for (int i = 0; i < 2; i++) {
		claim = hear();
		answer(&claim);
	}
	end(threads[0]);
	end(threads[1]);
	hear_rest();
	check_covered(2000);
}

/* The next daemon takes claims before the thread has seen that the one before is gone. */
static void a_claim_that_a_daemon_takes_with_it_holds_nobody_up(void)
{
	pthread_t more = begin_more();

	hear();
	claims_forget_daemon();
	claims_offered(true);
	end(more);
}

/* The process has been told that its claim waits: the next daemon has no more than the last one. */
static void a_claim_that_waits_is_repeated_to_the_next_daemon(void)
{
	pthread_t more = begin_more();
	struct gl_claim claim = hear(), again;

	wait_for(&claim);
	claims_forget_daemon();
	CHECK(!claims_next_message(&again));
	leave(1500);
	claims_offered(true);
	again = hear();
	CHECK(again.bytes == 1500 && again.least == 1500);
	answer(&again);
	end(more);
	check_covered(1500);
}

static void or_goes_on_if_the_next_one_takes_none(void)
{
	pthread_t more = begin_more();
	struct gl_claim claim = hear();

	wait_for(&claim);
	claims_forget_daemon();
	claims_offered(false);
	end(more);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
#define CASE(name) {#name, name}
    CASE(a_little_that_is_freed_while_a_claim_is_under_way_changes_nothing),
    CASE(much_that_is_freed_while_a_claim_is_under_way_makes_it_smaller),
    CASE(a_thread_that_allocates_meanwhile_waits_for_the_smaller_claim),
    CASE(what_is_freed_after_that_is_told),
    CASE(of_a_process_that_has_moved_it_is_told_of_the_new_gpu),
    CASE(of_two_threads_the_larger_claim_counts),
    CASE(a_claim_that_a_daemon_takes_with_it_holds_nobody_up),
    CASE(a_claim_that_waits_is_repeated_to_the_next_daemon),
    CASE(or_goes_on_if_the_next_one_takes_none),
};

int main(int argc, char **argv)
{
	alarm(PATIENCE_S);
	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		if (argc != 2)
			puts(cases[c].name);
		else if (!strcmp(cases[c].name, argv[1]))
			cases[c].run();
	}
	return 0;
}
