/* store_cases.c: swapped memory with a fake store (shim/memory/store/store.h). */
#include "mover_cases.h"

#include "base/clock.h"
#include "memory/store/store.h"

static struct {
	unsigned int later; /* how many answers are LATER from now on */
	unsigned int most;  /* how many copies may exist at once */
	unsigned int taken, given;
} store_state;

static void fake_give(struct copy *copy);
static struct store fake_store;

static enum store_answer fake_take(size_t size, struct copy **out)
{
	if (store_state.later) {
		store_state.later--;
		return STORE_LATER;
	}
	if (store_state.taken - store_state.given == store_state.most)
		return STORE_NONE;
	*out = malloc(sizeof(**out) + sizeof((*out)->parts[0]));
	CHECK(*out);
	(*out)->store = &fake_store;
	(*out)->n = 1;
	(*out)->parts[0] = (struct part){malloc(size), size};
	store_state.taken++;
	return STORE_READY;
}

static void fake_give(struct copy *copy)
{
	CHECK(copy->store == &fake_store);
	free(copy->parts[0].at);
	free(copy);
	store_state.given++;
}

static void fake_pin(const struct part *part)
{
	CHECK(part->at && part->size);
}

/* The store can take copies of so many segments. */
static void use_fake_store(unsigned int most)
{
	fake_store = pinned_store;
	fake_store.take = fake_take;
	fake_store.give = fake_give;
	fake_store.pin = fake_pin;
	store_state.most = most;
	swap_store = &fake_store;
}

void a_store_may_answer_later(void)
{
	CUdeviceptr pointer;

	use_fake_store(100);
	hold();
	pointer = swapped_block(24 * MIB, 1);
	store_state.later = 5;
	hand_over();
	CHECK(store_state.later == 0);
	CHECK(fake_driver.used[0] == 0);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
}

void what_has_no_copy_stays(void)
{
	CUdeviceptr pointer;

	use_fake_store(2);
	hold();
	pointer = swapped_block(24 * MIB, 1);
	hand_over();
	CHECK(fake_driver.used[0] == 16 * MIB);
	CHECK(reported().fixed == 16 * MIB && reported().bytes == 8 * MIB);
	CHECK(fake_rooms.complaints == 1);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
}

void copies_go_back_to_their_store(void)
{
	CUdeviceptr first, second;

	use_fake_store(100);
	hold();
	first = swapped_block(24 * MIB, 1);
	hand_over();
	CHECK(store_state.taken == 6 && !store_state.given);
	swap_store = &pinned_store;
	hold();
	second = swapped_block(24 * MIB, 2);
	hand_over();
	hold();
	CHECK(filled(first, 24 * MIB, 1) && filled(second, 24 * MIB, 2));
	OK(cuMemFree_v2(first));
	OK(cuMemFree_v2(second));
	CHECK(store_state.given == store_state.taken);
	check_empty();
}

void what_cannot_be_pinned_stays(void)
{
	CUdeviceptr pointer;

	hold();
	pointer = swapped_block(24 * MIB, 1);
	fake_driver.refuse_pinning = true;
	hand_over();
	CHECK(fake_driver.used[0] == 24 * MIB);
	CHECK(reported().fixed == 24 * MIB);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
	fake_driver.refuse_pinning = false;
	hand_over();
	CHECK(fake_driver.used[0] == 0);
	CHECK(fake_driver.pinned >= 24 * MIB);
}

/* The host runs short in the middle of a chunk. The driver waits for all work before it unregisters
 * what it has registered of that, and only this thread has it go on. */
void what_was_pinned_in_vain_goes_back_once_no_work_stands_still(void)
{
	CUdeviceptr pointer;

	fake_rooms.cleans = false; /* fingerprints lie in pinned memory too */
	swap_store->set_piece(160 * MIB);
	hold();
	pointer = swapped_block(24 * MIB, 1);
	fake_driver.pinned_most = 40 * MIB;
	fake_rooms.stopped = true;
	hand_over();
	CHECK(reported().fixed == 24 * MIB && fake_driver.pinned == 40 * MIB);
	CHECK(!memory_mover.has_excess());
	fake_rooms.stopped = false;
	for (int i = 0; i < 10000 && !memory_mover.has_excess(); i++) {
		pause_us(1000); /* the threads that have touched it end soon */
		step_until_idle();
	}
	CHECK(memory_mover.has_excess());
	memory_mover.give_up_excess(0);
	CHECK(fake_driver.pinned == 0 && !memory_mover.has_excess());
	fake_driver.pinned_most = 0;
	hand_over();
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
}

/* The program does nothing. The client thread looks again until all may leave. */
static void wait_for_another_look(void)
{
	for (int64_t pause; (pause = memory_mover.prepare()) > 0;)
		pause_us(pause / 1000 + 1);
	CHECK(reported().fixed == 0);
}

/* All of 24 MiB has stayed, for a reason that is not the host's, and can leave now. */
static void check_that_it_leaves(CUdeviceptr pointer)
{
	wait_for_another_look();
	CHECK(fake_rooms.complaints == 1);
	hand_over();
	CHECK(fake_driver.used[0] == 0);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
}

static CUdeviceptr check_that_it_stays(void)
{
	struct gl_details details[GL_MAX_DEVICES];
	CUdeviceptr pointer;

	hold();
	pointer = swapped_block(24 * MIB, 1);
	hand_over();
	CHECK(fake_driver.used[0] == 24 * MIB && reported().fixed == 24 * MIB);
	CHECK(fake_rooms.complaints == 1);
	CHECK(memory_details(details) == 1 && details[0].other == 24 * MIB);
	return pointer;
}

void what_has_no_stream_stays_until_there_is_one(void)
{
	CUdeviceptr pointer;

	fake_driver.refuse_streams = true;
	pointer = check_that_it_stays();
	CHECK(memory_mover.prepare() > 0);
	CHECK(reported().fixed == 24 * MIB);
	fake_driver.refuse_streams = false;
	check_that_it_leaves(pointer);
}

/* As long as it is not copied that is tried ever more seldom, however often others want it. */
void what_is_not_copied_stays_until_it_is(void)
{
	CUdeviceptr pointer;

	fake_driver.refuse_copies = true;
	pointer = check_that_it_stays();
	wait_for_another_look();
	fake_driver.copies_asked = 0;
	hand_over();
	CHECK(fake_driver.copies_asked && reported().fixed == 24 * MIB);
	memory_mover.prepare();
	CHECK(reported().fixed == 24 * MIB);
	fake_driver.refuse_copies = false;
	check_that_it_leaves(pointer);
}
