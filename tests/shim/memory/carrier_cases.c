/* carrier_cases.c: a carrier takes memory away, and ends when it should not. */
#include "mover_cases.h"

#include "base/passing.h"
#include "base/wire_move.h"
#include "memory/carried.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define ALL (24 * MIB) /* six segments */
#define PIECE (4 * MIB)
#define MANY 1000000 /* steps, which take longer than any pause between two looks */

/* The carrier's end of a socket whose other end the process has. */
static int lend(void)
{
	int ends[2];

	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
	carried_meet(ends[0]);
	return ends[1];
}

/* Takes the next request, as a carrier that keeps the memory itself where it is: whoever has the
 * descriptor has its bytes. Returns false if there is none. */
static bool take_away(int end)
{
	struct gl_carried answer = {0};
	struct gl_carry request;
	int files[PASS_MOST];
	size_t n = 0;

	if (pass_receive(end, &request, sizeof(request), files, &n) != sizeof(request))
		return false;
	CHECK(request.what == GL_CARRY_AWAY && n == 1);
	CHECK(pass_send(end, &answer, sizeof(answer), files, n));
	close(files[0]);
	return true;
}

/* Takes the next request, as a carrier that brings memory back. Returns false if there is none. */
static bool bring_back(int end)
{
	struct gl_carried answer = {0};
	struct gl_carry request;
	static char bytes[PIECE];
	int files[PASS_MOST];
	size_t n = 0;

	if (pass_receive(end, &request, sizeof(request), files, &n) != sizeof(request))
		return false;
	CHECK(request.what == GL_CARRY_BACK && n == 2 && request.bytes <= PIECE);
	CHECK(pread(files[1], bytes, request.bytes, 0) == (ssize_t)request.bytes);
	CHECK(pwrite(files[0], bytes, request.bytes, 0) == (ssize_t)request.bytes);
	CHECK(pass_send(end, &answer, sizeof(answer), NULL, 0));
	close(files[0]);
	close(files[1]);
	return true;
}

static void begin_leaving(void)
{
	memory_mover.allow_eviction();
	memory_mover.evict_all();
}

/* It is asked for all of them, and answers none. */
void what_a_carrier_does_not_take_goes_by_the_host(void)
{
	CUdeviceptr pointer;
	int end;

	hold();
	pointer = swapped_block(ALL, 1);
	end = lend();
	begin_leaving();
	for (int i = 0; i < 100; i++)
		CHECK(memory_mover.step());
	CHECK(fake_driver.used[0] == ALL && !fake_driver.copied_out);
	close(end);
	step_until_idle();
	CHECK(fake_driver.used[0] == 0 && fake_driver.copied_out == ALL);
	hold();
	CHECK(filled(pointer, ALL, 1));
}

/* It was on its way there when the carrier came, as where the job's turn had just ended. */
void what_is_on_its_way_to_the_host_stays_registered_beside_a_carrier(void)
{
	struct gl_memory all = amount_of(ALL);

	fake_rooms.cleans = false; /* fingerprints lie in pinned memory too */
	hold();
	swapped_block(ALL, 1);
	memory_mover.expect(&all);
	while (memory_mover.prepare() > 0)
		;
	fake_driver.hold_events = true;
	memory_mover.allow_eviction();
	memory_mover.evict(&all);
	for (int i = 0; i < 100; i++)
		CHECK(memory_mover.step());
	CHECK(fake_driver.copied_out == 3 * PIECE && fake_driver.pinned == ALL);
	lend();
	memory_mover.rest(true);
	for (int i = 0; i < 100; i++)
		CHECK(memory_mover.step());
	CHECK(fake_driver.pinned == ALL);
	fake_driver.hold_events = false;
	for (int i = 0; i < MANY && fake_driver.pinned; i++)
		CHECK(memory_mover.step());
	CHECK(fake_driver.pinned == 0);
}

/* The driver waits for all work before it unregisters some, so what is not needed beside a carrier
 * rests once the job's turn has ended. */
void nothing_rests_while_the_job_has_its_turn(void)
{
	struct gl_memory all = amount_of(ALL);

	fake_rooms.cleans = false;
	hold();
	swapped_block(ALL, 1);
	memory_mover.expect(&all);
	while (memory_mover.prepare() > 0)
		;
	lend();
	memory_mover.rest(true);
	step_until_idle();
	CHECK(fake_driver.pinned == ALL);
	memory_mover.allow_eviction();
	step_until_idle();
	CHECK(fake_driver.pinned == 0);
}

/* The program ends its context while the carrier has all of it, and goes on in another one. */
void a_context_may_end_while_a_carrier_is_asked(void)
{
	CUdeviceptr pointer;
	int end;

	hold();
	pointer = swapped_block(ALL, 1);
	end = lend();
	begin_leaving();
	for (int i = 0; i < 100; i++)
		CHECK(memory_mover.step());
	fake_context_ends(fake_context(0));
	fake_rooms.no_context = true;
	for (int i = 0; i < 100; i++)
		memory_mover.step();
	close(end);
	fake_rooms.no_context = false;
	hold();
	CHECK(filled(pointer, ALL, 1));
}

/* Each segment that is away is a descriptor of the process, of which the program needs some. */
void a_carrier_leaves_the_program_descriptors(void)
{
	struct rlimit few = {100, 100};
	int end;

	CHECK(!setrlimit(RLIMIT_NOFILE, &few));
	hold();
	for (int i = 0; i < 60; i++)
		swapped_block(2 * MIB, 1);
	end = lend();
	begin_leaving();
	for (int i = 0; i < MANY && memory_mover.step(); i++)
		take_away(end);
	CHECK(fake_driver.copied_out > 0);
	for (int i = 0; i < 45; i++)
		CHECK(dup(end) >= 0);
}

/* The process had no room for its descriptor. */
void a_carrier_that_is_lost_on_its_way_is_asked_for_again(void)
{
	int end;

	hold();
	swapped_block(ALL, 1);
	end = lend();
	begin_leaving();
	for (int i = 0; i < MANY && memory_mover.step(); i++)
		take_away(end);
	CHECK(fake_driver.copied_out == 0);
	close(end);
	CHECK(carried_is_stranded());
	CHECK(!carried_is_stranded());
	carried_meet(-1);
	CHECK(carried_is_stranded());
}

/* It has been asked for memory, and has brought none. */
void what_a_carrier_leaves_away_comes_by_the_next_one(void)
{
	struct gl_grant grant;
	CUdeviceptr pointer;
	bool finished = false;
	int end;

	hold();
	grant = grant_of(fake_rooms.limit);
	pointer = swapped_block(ALL, 1);
	end = lend();
	begin_leaving();
	for (int i = 0; i < MANY && memory_mover.step(); i++)
		take_away(end);
	close(end);
	CHECK(carried_is_stranded());
	end = lend();
	memory_mover.restore(&grant);
	for (int i = 0; i < 100; i++)
		memory_mover.step();
	close(end);
	for (int i = 0; i < 100; i++)
		memory_mover.step();
	CHECK(carried_is_stranded() && !memory_mover.restore_finished());
	end = lend();
	for (int i = 0; i < MANY && !finished; i++) {
		memory_mover.step();
		bring_back(end);
		finished = memory_mover.restore_finished();
	}
	CHECK(finished && filled(pointer, ALL, 1));
}

/* It is on the new GPU twice for a moment: if other jobs left no room for that, it never came. */
void what_a_carrier_brings_back_asks_for_room_for_a_piece_more(void)
{
	struct gl_grant grant;
	bool finished = false;
	int end;

	hold();
	grant = grant_of(fake_rooms.limit);
	swapped_block(ALL, 1);
	end = lend();
	begin_leaving();
	for (int i = 0; i < MANY && memory_mover.step(); i++)
		take_away(end);
	CHECK(reported().resident == 0 && reported().fixed == 0); /* it is on the other GPU */
	carried_move_ends();
	CHECK(reported().bytes == ALL && reported().fixed >= PIECE);
	memory_mover.restore(&grant);
	for (int i = 0; i < MANY && !finished; i++) {
		memory_mover.step();
		bring_back(end);
		finished = memory_mover.restore_finished();
	}
	CHECK(finished && reported().resident == ALL && reported().fixed == 0);
	close(end);
}

/* The program has freed what was away: a carrier that the process keeps would hold up the next
 * move of its job. */
void a_carrier_that_comes_when_nothing_is_away_any_more_is_let_go(void)
{
	CUdeviceptr pointer;
	char byte;
	int end;

	hold();
	pointer = swapped_block(ALL, 1);
	end = lend();
	begin_leaving();
	for (int i = 0; i < MANY && memory_mover.step(); i++)
		take_away(end);
	close(end);
	CHECK(carried_is_stranded());
	OK(cuMemFree_v2(pointer));
	end = lend();
	CHECK(recv(end, &byte, 1, MSG_DONTWAIT) == 0);
	end = lend(); /* of the next move */
	CHECK(recv(end, &byte, 1, MSG_DONTWAIT) < 0);
}
