/* host_memory_cases.c: host memory that the daemon lends is ready before anything is evicted. */
#include "mover_cases.h"

#include "base/locks.h"
#include "memory/host.h"
#include "memory/store/chunk_pages.h"
#include "memory/store/chunks.h"
#include "memory/store/store.h"
#include "memory/swap/blocks.h"
#include "memory/swap/segments.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A fake daemon that lends host memory. */
static struct {
	unsigned int takes, gives; /* requests so far */
	uint64_t bytes;            /* that the process has */
	uint64_t last;             /* the number of the last GL_HOST_TAKE */
	bool refuses;              /* it has no memory */
	bool too_short;            /* its files are shorter than it says */
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

/* Answers all requests. */
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

/* The daemon wants so much host memory kept ready. */
static void keep(uint64_t bytes)
{
	struct gl_memory amount = amount_of(bytes);

	memory_mover.keep_host_memory(&amount);
}

/* Takes steps until nothing has to be made ready or given back. Returns the most bytes that one
 * step has pinned. */
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

/* The gate is shut, and no work is in flight. */
static void be_quiet(void)
{
	for (step_until_idle(); memory_mover.has_excess(); serve()) {
		fake_rooms.waits = true;
		memory_mover.give_up_excess(0);
		fake_rooms.waits = false;
	}
}

/* The process has a lease, and a daemon that lends memory. There are no fingerprints, since they
 * lie in pinned memory too. */
static void offer(void)
{
	fake_rooms.cleans = false;
	host_offered(true);
	hold();
}

/* The program has 24 MiB, filled with 1. */
static CUdeviceptr begin(void)
{
	offer();
	return swapped_block(24 * MIB, 1);
}

/* The same with pieces of 160 MiB, of whose host memory a first slice is pinned. */
static CUdeviceptr begin_pinning(void)
{
	CUdeviceptr pointer;

	offer();
	swap_store->set_piece(160 * MIB);
	pointer = swapped_block(24 * MIB, 1);
	keep(24 * MIB);
	for (serve(); fake_driver.pinned == 0; serve())
		CHECK(memory_mover.prepare() > 0);
	return pointer;
}

/* The memory of begin() is evicted, with so many bytes pinned, and restored as it was. */
static void check_handoff(CUdeviceptr pointer, uint64_t pinned)
{
	hand_over();
	CHECK(fake_driver.used[0] == 0 && fake_driver.pinned == pinned);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
}

void nothing_is_made_at_a_handoff_that_was_made_ahead(void)
{
	CUdeviceptr pointer = begin();

	keep(24 * MIB);
	get_ready();
	CHECK(node.bytes == 24 * MIB && node.takes == 6);
	CHECK(fake_driver.pinned == 24 * MIB);
	CHECK(memory_mover.prepare() < 0);
	check_handoff(pointer, 24 * MIB);
	serve();
	CHECK(node.takes == 6);
}

void it_grows_by_what_is_lacking(void)
{
	begin();
	keep(8 * MIB);
	get_ready();
	CHECK(node.bytes == 8 * MIB);
	keep(24 * MIB);
	get_ready();
	CHECK(node.bytes == 24 * MIB && !node.gives);
}

void what_cannot_have_to_leave_any_more_goes_back(void)
{
	begin();
	keep(24 * MIB);
	get_ready();
	keep(8 * MIB);
	get_ready();
	step_until_idle();
	CHECK(node.bytes == 24 * MIB && fake_driver.pinned == 24 * MIB);
	be_quiet();
	CHECK(node.bytes == 8 * MIB && fake_driver.pinned == 8 * MIB);
	keep(0);
	get_ready();
	be_quiet();
	CHECK(node.bytes == 0 && fake_driver.pinned == 0);
	CHECK(node.gives == node.takes);
}

/* The driver waits for that work when it unregisters memory, and only this thread has it go on. */
void it_goes_back_when_work_that_stands_still_goes_on(void)
{
	begin();
	keep(24 * MIB);
	get_ready();
	fake_rooms.stopped = true;
	keep(8 * MIB);
	get_ready();
	be_quiet();
	CHECK(node.bytes == 24 * MIB && fake_driver.pinned == 24 * MIB);
	fake_rooms.stopped = false;
	be_quiet();
	CHECK(node.bytes == 8 * MIB && fake_driver.pinned == 8 * MIB);
}

void what_is_away_stays_on_the_host(void)
{
	CUdeviceptr pointer = begin();

	keep(24 * MIB);
	get_ready();
	hand_over();
	keep(0);
	get_ready();
	CHECK(node.bytes == 24 * MIB && !node.gives);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
}

/* With pieces of 160 MiB. */
void it_is_pinned_in_slices_and_copies_stay_within_them(void)
{
	CUdeviceptr pointers[4];

	offer();
	swap_store->set_piece(160 * MIB);
	for (int i = 0; i < 4; i++)
		pointers[i] = swapped_block(24 * MIB, (uint8_t)i);
	keep(96 * MIB);
	CHECK(get_ready() == 20 * MIB);
	CHECK(fake_driver.pinned == 160 * MIB && node.takes == 1);
	hand_over();
	CHECK(fake_driver.used[0] == 0);
	hold();
	for (int i = 0; i < 4; i++)
		CHECK(filled(pointers[i], 24 * MIB, (uint8_t)i));
}

/* The handoff comes when a part of the host memory is pinned. */
void a_handoff_may_come_in_between(void)
{
	CUdeviceptr pointer = begin_pinning();

	CHECK(fake_driver.pinned == 20 * MIB);
	check_handoff(pointer, 160 * MIB);
	CHECK(node.takes == 1);
}

void a_context_may_end_in_between(void)
{
	CUdeviceptr pointer = begin_pinning();

	fake_rooms.waits = true;
	swap_store->context_ends(fake_driver.current);
	fake_rooms.waits = false;
	CHECK(fake_driver.pinned == 0);
	get_ready();
	check_handoff(pointer, 160 * MIB);
}

/* The job's own memory is not used for what may never be needed. */
void a_node_that_has_none_is_not_asked_again_and_again(void)
{
	begin();
	node.refuses = true;
	keep(24 * MIB);
	get_ready();
	keep(24 * MIB);
	get_ready();
	CHECK(node.takes == 6 && fake_driver.pinned == 0);
}

void a_file_that_cannot_be_used_goes_back(void)
{
	begin();
	node.too_short = true;
	keep(24 * MIB);
	get_ready();
	CHECK(node.gives == node.takes && node.bytes == 0);
	CHECK(fake_driver.pinned == 0);
}

/* Nothing is lost by that: at the handoff the memory is pinned after all. */
void a_driver_may_refuse_to_pin_it(void)
{
	CUdeviceptr pointer = begin();

	fake_driver.refuse_pinning = true;
	keep(24 * MIB);
	get_ready();
	CHECK(node.bytes == 24 * MIB && fake_driver.pinned == 0);
	CHECK(memory_mover.prepare() < 0);
	fake_driver.refuse_pinning = false;
	check_handoff(pointer, 24 * MIB);
}

/* A request that the first daemon has not answered is repeated to the second with its number. */
void the_daemon_may_be_another_one_meanwhile(void)
{
	struct gl_host lost;

	begin();
	keep(4 * MIB);
	CHECK(host_next_message(&lost));
	host_forget_daemon();
	keep(4 * MIB);
	host_offered(true);
	get_ready();
	CHECK(node.takes == 1 && node.last == lost.number);
	CHECK(node.bytes == 4 * MIB && fake_driver.pinned == 4 * MIB);
}

/* The first daemon may have had memory made for a request that it has not answered. The second one
 * gives none, so the request is not repeated; the third one takes that memory back. */
void what_a_daemon_may_have_made_goes_back_if_the_next_has_none(void)
{
	struct gl_host asked, given;

	begin();
	keep(8 * MIB);
	CHECK(host_next_message(&asked) && asked.header.type == GL_HOST_TAKE);
	host_forget_daemon();
	host_offered(false);
	CHECK(!host_next_message(&given));
	host_forget_daemon();
	host_offered(true);
	CHECK(host_next_message(&given) && given.header.type == GL_HOST_GIVE);
	CHECK(given.number == asked.number && given.bytes == asked.bytes);
	answer_give(&given);
	CHECK(!host_next_message(&given));
	node.bytes = 0;
	keep(8 * MIB);
	get_ready();
	CHECK(node.bytes == 8 * MIB && fake_driver.pinned == 8 * MIB);
}

/* The job gets a further GPU while gpu-leased-copies is started again. */
void what_a_daemon_makes_goes_back_if_it_offers_none_any_more(void)
{
	struct gl_host asked, given;

	begin();
	keep(4 * MIB);
	CHECK(host_next_message(&asked) && asked.header.type == GL_HOST_TAKE);
	host_offered(false);
	answer_take(&asked);
	host_offered(true);
	CHECK(host_next_message(&given) && given.header.type == GL_HOST_GIVE);
	CHECK(given.number == asked.number && given.bytes == asked.bytes);
	answer_give(&given);
	CHECK(!host_next_message(&given) && node.bytes == 0);
}

void what_somebody_waits_for_is_got_ready_however_little_it_is(void)
{
	struct gl_memory some = amount_of(8 * MIB);

	begin();
	memory_mover.expect(&some);
	get_ready();
	CHECK(node.bytes == 8 * MIB && fake_driver.pinned == 8 * MIB);
}

/* The rest of the bytes is copied to memory of the job's own. */
void the_node_may_have_no_more_in_mid_handoff(void)
{
	struct gl_memory all = amount_of(fake_rooms.limit);
	CUdeviceptr pointer = begin();

	keep(8 * MIB);
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

static void share(CUdeviceptr pointer)
{
	struct block *block;

	lock_take(&swap_lock);
	block = block_find(pointer);
	block->shared = true;
	for (unsigned int i = 0; i < block->n; i++)
		segment_set_fixed(&block->segments[i], true);
	lock_give(&swap_lock);
}

/* Other processes may use it, so it never leaves the device. */
void shared_memory_stays_and_needs_none(void)
{
	struct gl_memory some = amount_of(8 * MIB);
	CUdeviceptr shared = begin(), moves = swapped_block(8 * MIB, 2);

	share(shared);
	memory_mover.expect(&some);
	get_ready();
	CHECK(node.bytes == 8 * MIB);
	for (int i = 0; i < 2; i++) {
		hand_over();
		CHECK(fake_driver.used[0] == 24 * MIB);
		serve();
		hold();
		serve();
		CHECK(node.bytes == 8 * MIB && node.takes == 2);
	}
	CHECK(filled(shared, 24 * MIB, 1) && filled(moves, 8 * MIB, 2));
}

/* The program captures in a mode that forbids other threads such calls. */
void it_breaks_no_capture(void)
{
	begin();
	fake_driver.pinned_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	keep(4 * MIB);
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
	keep(4 * MIB);
	get_ready();
	CHECK(refused == 1 && fake_driver.pinned == 4 * MIB);
	CHECK(!mincore(fake_pinned(), 4 * MIB, there));
	for (size_t page = 0; page < 4 * MIB / 4096; page++)
		CHECK(there[page] & 1);
}

/* -- threads that end before the call that starts them returns, as a debugger makes them ------- */

static unsigned int threads_started;
static bool threads_end_first;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
	int error = __real_pthread_create(thread, attributes, run, argument);

	CHECK(++threads_started < 100);
	while (threads_end_first && !error && chunks_being_touched())
		sched_yield();
	return error;
}

void helpers_may_end_before_the_next_one_starts(void)
{
	threads_end_first = true;
	CHECK(chunk_add(64 * MIB));
	chunks_hurry(true);
	chunks_touch();
	CHECK(!chunks_untouched());
}
