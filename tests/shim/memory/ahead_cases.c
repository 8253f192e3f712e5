/* ahead_cases.c: host memory of the node is there before anything has to leave. */
#include "mover_cases.h"

#include "memory/host.h"
#include "memory/swap/store.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The daemon, as far as it makes host memory. */
static struct {
	unsigned int takes, gives; /* messages */
	uint64_t bytes;            /* that the process has */
	uint64_t last;             /* number of the last question for some */
	bool refuses, too_short;   /* it has none; what it gives is shorter than it says */
} node;

static void answer_take(const struct gl_host *asked)
{
	struct gl_host_answer answer = {.code = node.refuses ? GL_HOST_FULL : GL_HOST_TAKEN,
	                                .number = asked->number,
	                                .bytes = asked->bytes};
	int file = node.refuses ? -1 : memfd_create("copies", MFD_CLOEXEC);

	node.takes++;
	node.last = asked->number;
	if (file >= 0) {
		node.bytes += asked->bytes;
		CHECK(!ftruncate(file, (off_t)(node.too_short ? 4096 : asked->bytes)));
	}
	host_answer(&answer, file);
}

static void answer_give(const struct gl_host *given)
{
	struct gl_host_answer answer = {.code = GL_HOST_GIVEN, .number = given->number};

	node.gives++;
	node.bytes -= given->bytes;
	host_answer(&answer, -1);
}

static void serve(void)
{
	struct gl_host message;

	while (host_next_message(&message)) {
		if (message.header.type == GL_HOST_TAKE)
			answer_take(&message);
		else
			answer_give(&message);
	}
}

static void say(uint64_t bytes)
{
	struct gl_memory amount = amount_of(bytes);

	memory_mover.keep_host_memory(&amount);
}

/* Until nothing is to be got ready or given back. Returns the most that one step pinned. */
static uint64_t get_ready(void)
{
	uint64_t most = 0, before = fake_driver.pinned;

	for (serve(); memory_mover.prepare() > 0; serve()) {
		if (fake_driver.pinned > before + most)
			most = fake_driver.pinned - before;
		before = fake_driver.pinned;
	}
	return most;
}

/* Without fingerprints, which lie in pinned memory too. */
static void offer(void)
{
	fake_rooms.cleans = false;
	host_offered(true);
	hold();
}

static CUdeviceptr begin(void)
{
	offer();
	return swapped_block(24 * MIB, 1);
}

void nothing_is_made_at_a_handoff_that_was_made_ahead(void)
{
	CUdeviceptr pointer = begin();

	say(24 * MIB);
	get_ready();
	CHECK(node.bytes == 24 * MIB && node.takes == 6);
	CHECK(fake_driver.pinned == 24 * MIB);
	CHECK(memory_mover.prepare() < 0);
	hand_over();
	serve();
	CHECK(node.takes == 6 && fake_driver.pinned == 24 * MIB);
	CHECK(fake_driver.used[0] == 0);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
}

void it_grows_by_what_is_lacking(void)
{
	begin();
	say(8 * MIB);
	get_ready();
	CHECK(node.bytes == 8 * MIB);
	say(24 * MIB);
	get_ready();
	CHECK(node.bytes == 24 * MIB && !node.gives);
}

void what_cannot_have_to_leave_any_more_goes_back(void)
{
	begin();
	say(24 * MIB);
	get_ready();
	say(8 * MIB);
	get_ready();
	CHECK(node.bytes == 8 * MIB && fake_driver.pinned == 8 * MIB);
	say(0);
	get_ready();
	CHECK(node.bytes == 0 && fake_driver.pinned == 0);
	CHECK(node.gives == node.takes);
}

void what_is_away_stays_on_the_host(void)
{
	CUdeviceptr pointer = begin();

	say(24 * MIB);
	get_ready();
	hand_over();
	say(0);
	get_ready();
	CHECK(node.bytes == 24 * MIB && !node.gives);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
}

/* Of pieces of 160 MiB. */
void it_is_pinned_in_slices_and_copies_stay_within_them(void)
{
	CUdeviceptr pointers[4];

	offer();
	swap_store->set_piece(160 * MIB);
	for (int i = 0; i < 4; i++)
		pointers[i] = swapped_block(24 * MIB, (uint8_t)i);
	say(96 * MIB);
	CHECK(get_ready() == 32 * MIB);
	CHECK(fake_driver.pinned == 160 * MIB && node.takes == 1);
	hand_over();
	CHECK(fake_driver.used[0] == 0);
	hold();
	for (int i = 0; i < 4; i++)
		CHECK(filled(pointers[i], 24 * MIB, (uint8_t)i));
}

/* The gate is shut for a handoff when a part is pinned. */
void a_handoff_may_come_in_between(void)
{
	CUdeviceptr pointer;

	offer();
	swap_store->set_piece(160 * MIB);
	pointer = swapped_block(24 * MIB, 1);
	say(24 * MIB);
	for (serve(); fake_driver.pinned == 0; serve())
		CHECK(memory_mover.prepare() > 0);
	CHECK(fake_driver.pinned == 32 * MIB);
	hand_over();
	CHECK(fake_driver.used[0] == 0 && node.takes == 1);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
}

void a_context_may_end_in_between(void)
{
	CUdeviceptr pointer;

	offer();
	swap_store->set_piece(160 * MIB);
	pointer = swapped_block(24 * MIB, 1);
	say(24 * MIB);
	for (serve(); fake_driver.pinned == 0; serve())
		CHECK(memory_mover.prepare() > 0);
	swap_store->context_ends(fake_driver.current);
	CHECK(fake_driver.pinned == 0);
	get_ready();
	hand_over();
	CHECK(fake_driver.used[0] == 0 && fake_driver.pinned == 160 * MIB);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
}

/* The job's own memory is not taken for what may never be needed. */
void a_node_that_has_none_is_not_asked_again_and_again(void)
{
	begin();
	node.refuses = true;
	say(24 * MIB);
	get_ready();
	say(24 * MIB);
	get_ready();
	CHECK(node.takes == 6 && fake_driver.pinned == 0);
}

void a_file_that_cannot_be_used_goes_back(void)
{
	begin();
	node.too_short = true;
	say(24 * MIB);
	get_ready();
	CHECK(node.gives == node.takes && node.bytes == 0);
	CHECK(fake_driver.pinned == 0);
}

/* Nothing is lost by it: at the handoff the memory stays on the device, as without. */
void a_driver_may_refuse_to_pin_it(void)
{
	CUdeviceptr pointer = begin();

	fake_driver.refuse_pinning = true;
	say(24 * MIB);
	get_ready();
	CHECK(node.bytes == 24 * MIB && fake_driver.pinned == 0);
	CHECK(memory_mover.prepare() < 0);
	fake_driver.refuse_pinning = false;
	hand_over();
	CHECK(fake_driver.used[0] == 0);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
}

/* What the one has not answered the other is asked, under the same number. */
void the_daemon_may_be_another_one_meanwhile(void)
{
	struct gl_host lost;

	begin();
	say(4 * MIB);
	CHECK(host_next_message(&lost));
	host_forget_daemon();
	say(4 * MIB);
	host_offered(true);
	get_ready();
	CHECK(node.takes == 1 && node.last == lost.number);
	CHECK(node.bytes == 4 * MIB && fake_driver.pinned == 4 * MIB);
}

void what_somebody_waits_for_is_got_ready_however_little_it_is(void)
{
	struct gl_memory some = amount_of(8 * MIB);

	begin();
	memory_mover.expect(&some);
	get_ready();
	CHECK(node.bytes == 8 * MIB && fake_driver.pinned == 8 * MIB);
}

/* What it does not get any more lies in memory of the job's own. */
void the_node_may_have_no_more_in_mid_handoff(void)
{
	struct gl_memory all = amount_of(fake_rooms.limit);
	CUdeviceptr pointer = begin();

	say(8 * MIB);
	get_ready();
	node.refuses = true;
	memory_mover.allow_eviction();
	memory_mover.evict(&all);
	while (memory_mover.step())
		serve();
	CHECK(node.bytes == 8 * MIB && node.takes > 2);
	CHECK(fake_driver.used[0] == 0 && fake_driver.pinned == 24 * MIB);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
}

/* Which the program may make with a thread that forbids others such calls. */
void it_breaks_no_capture(void)
{
	begin();
	fake_driver.pinned_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	say(4 * MIB);
	get_ready();
	CHECK(fake_driver.pinned == 4 * MIB);
	CHECK(fake_driver.pinned_mode == CU_STREAM_CAPTURE_MODE_RELAXED);
	CHECK(fake_driver.mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* -- a kernel before 5.14 -------------------------------------------------------------------- */

static bool old_kernel;
static unsigned int refused;

int madvise(void *at, size_t size, int advice)
{
	if (old_kernel && advice == 23) { /* MADV_POPULATE_WRITE */
		refused++;
		errno = EINVAL;
		return -1;
	}
	return (int)syscall(SYS_madvise, at, size, advice);
}

void an_old_kernel_has_its_pages_touched_by_hand(void)
{
	unsigned char there[4 * MIB / 4096];

	begin();
	old_kernel = true;
	say(4 * MIB);
	get_ready();
	CHECK(refused == 1 && fake_driver.pinned == 4 * MIB);
	CHECK(!mincore(fake_pinned(), 4 * MIB, there));
	for (size_t page = 0; page < 4 * MIB / 4096; page++)
		CHECK(there[page] & 1);
}
