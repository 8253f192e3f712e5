/* memory_movers.c: memory that leaves and comes back (shim/memory/mover.h), and the store of what
 * has left (shim/memory/swap/store.h), in shim/memory alone.
 *
 * memory_movers: the cases, a line each. memory_movers CASE: runs one.
 */
#include "checks.h"
#include "memory/kind.h"
#include "memory/mover.h"
#include "memory/swap/store.h"

#define SLICE (FAKE_CAPACITY / 32) /* of what a job may have */

static const struct memory_kind *const managed = &managed_memory, *const swapped = &swapped_memory;

static void step_until_idle(void)
{
	while (memory_mover.step())
		;
}

/* -- managed memory ---------------------------------------------------------------------- */

/* The client thread goes on while memory comes: the driver would end this program if
 * anybody waited for an event. */
static void it_comes_back_in_steps(void)
{
	struct gl_grant grant = grant_of(24 * MIB);

	allocate(managed, 24 * MIB);
	fake_driver.hold_events = true;
	memory_mover.restore(&grant);
	for (int i = 0; i < 5; i++) {
		CHECK(!memory_mover.restored());
		CHECK(memory_mover.step());
	}
	CHECK(fake_driver.prefetched == 2 * SLICE);
	CHECK(memory_mover.pause_ns() > 0);
	fake_driver.hold_events = false;
	step_until_idle();
	CHECK(memory_mover.restored());
	CHECK(fake_driver.prefetched == 24 * MIB);
	CHECK(fake_driver.streams == 0 && fake_driver.events == 0);
}

static void a_revoke_ends_it(void)
{
	struct gl_grant grant = grant_of(24 * MIB);

	allocate(managed, 24 * MIB);
	fake_driver.hold_events = true;
	memory_mover.restore(&grant);
	CHECK(!memory_mover.restored());
	CHECK(memory_mover.step());
	memory_mover.stop();
	CHECK(memory_mover.step()); /* what is under way arrives */
	fake_driver.hold_events = false;
	step_until_idle();
	CHECK(fake_driver.prefetched == 2 * SLICE);
	CHECK(fake_driver.streams == 0 && fake_driver.events == 0);
	hold();
	CHECK(fake_driver.prefetched == 2 * SLICE + 24 * MIB);
}

static void only_what_fits_comes_the_newest_first(void)
{
	CUdeviceptr newest;

	fake_rooms.oversub = true;
	fake_rooms.limit = 32 * MIB;
	allocate(managed, 20 * MIB);
	newest = allocate(managed, 20 * MIB);
	hold();
	CHECK(fake_driver.first_prefetch == newest);
	CHECK(fake_driver.prefetched == 20 * MIB);
}

static void its_context_may_end_meanwhile(void)
{
	struct gl_grant grant = grant_of(24 * MIB);

	allocate(managed, 24 * MIB);
	fake_driver.hold_events = true;
	memory_mover.restore(&grant);
	CHECK(!memory_mover.restored());
	CHECK(memory_mover.step());
	fake_driver.hold_events = false; /* who ends a context waits for what is in it */
	fake_context_ends(fake_context(0));
	CHECK(fake_driver.streams == 0 && fake_driver.events == 0);
	CHECK(memory_mover.restored());
}

static void freed_memory_is_passed_over(void)
{
	CUdeviceptr oldest = allocate(managed, 12 * MIB), newest = allocate(managed, 12 * MIB);
	struct gl_grant grant = grant_of(24 * MIB);

	fake_driver.hold_events = true;
	memory_mover.restore(&grant);
	CHECK(!memory_mover.restored());
	CHECK(memory_mover.step());
	OK(cuMemFree_v2(newest));
	fake_driver.hold_events = false;
	step_until_idle();
	CHECK(memory_mover.restored());
	CHECK(fake_driver.prefetched == 2 * SLICE + 12 * MIB);
	OK(cuMemFree_v2(oldest));
	check_empty();
}

static void what_came_is_said_once(void)
{
	struct gl_grant grant = grant_of(6 * MIB);
	struct moved moved;

	allocate(managed, 24 * MIB);
	memory_mover.restore(&grant);
	while (!memory_mover.restored())
		memory_mover.step();
	moved = memory_mover.brought();
	CHECK(moved.bytes == 6 * MIB && moved.ns > 0); /* the rest was there */
	CHECK(memory_mover.brought().bytes == 0);
}

/* Nothing is brought for a single call, nor where there is nothing. */
static void nothing_is_said_of_nothing(void)
{
	struct gl_grant grant = grant_of(6 * MIB);

	memory_mover.restore(&grant);
	while (!memory_mover.restored())
		memory_mover.step();
	CHECK(memory_mover.brought().bytes == 0);
	allocate(managed, 24 * MIB);
	memory_mover.restore(NULL);
	CHECK(memory_mover.restored());
	CHECK(memory_mover.brought().bytes == 0);
	CHECK(fake_driver.prefetched == 0);
}

/* Others had displaced it, and the program works on. */
static void it_comes_beside_work(void)
{
	struct gl_grant grant = grant_of(24 * MIB);

	hold();
	allocate(managed, 24 * MIB);
	memory_mover.refill(&grant);
	step_until_idle();
	CHECK(fake_driver.prefetched == 24 * MIB);
	CHECK(memory_mover.brought().bytes == 24 * MIB);
}

/* What the daemon says later comes as well, whatever has been begun. */
static void a_second_refill_begins_anew(void)
{
	struct gl_grant grant = grant_of(24 * MIB);

	hold();
	allocate(managed, 8 * MIB);
	fake_driver.hold_events = true;
	memory_mover.refill(&grant);
	CHECK(memory_mover.step());
	allocate(managed, 4 * MIB);
	memory_mover.refill(&grant);
	fake_driver.hold_events = false;
	step_until_idle();
	CHECK(fake_driver.prefetched == 2 * SLICE + 12 * MIB);
}

static void devices_of_others_are_left_alone(void)
{
	struct gl_grant grant = grant_of(24 * MIB);

	allocate(managed, 24 * MIB);
	grant.devices[0].uuid[0] ^= 1;
	memory_mover.restore(&grant);
	CHECK(memory_mover.restored());
	fake_rooms.limit = NO_LIMIT;
	hold();
	CHECK(fake_driver.prefetched == 0);
}

/* -- swapped memory ----------------------------------------------------------------------- */

static CUdeviceptr swapped_block(size_t size, uint8_t seed)
{
	CUdeviceptr pointer;

	CHECK(swapped->serves(0));
	pointer = allocate(swapped, size);
	fill(pointer, size, seed);
	fake_rooms.submitted++;
	return pointer;
}

static void only_what_others_lack_leaves(void)
{
	struct gl_memory some = amount_of(6 * MIB);

	hold();
	swapped_block(24 * MIB, 1);
	memory_mover.let_go();
	memory_mover.evict(&some);
	step_until_idle();
	CHECK(fake_driver.used[0] == 16 * MIB); /* whole segments of 4 MiB */
	CHECK(said().resident == 16 * MIB && said().bytes == 24 * MIB);
}

static void what_nobody_touched_is_not_copied_again(void)
{
	CUdeviceptr pointer;

	hold();
	pointer = swapped_block(24 * MIB, 1);
	hand_over();
	CHECK(fake_driver.copied_out == 24 * MIB);
	hold();
	hand_over();
	CHECK(fake_driver.copied_out == 24 * MIB);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
}

static void it_comes_before_its_turn(void)
{
	struct gl_memory some = amount_of(8 * MIB);

	hold();
	swapped_block(24 * MIB, 1);
	hand_over();
	memory_mover.preload(&some);
	while (said().resident < 8 * MIB)
		memory_mover.step();
	memory_mover.stop();
	CHECK(fake_driver.used[0] == 8 * MIB);
}

static void a_restore_goes_on_after_a_revoke(void)
{
	struct gl_grant grant = grant_of(24 * MIB);
	CUdeviceptr pointer;

	hold();
	pointer = swapped_block(24 * MIB, 1);
	hand_over();
	fake_driver.hold_events = true;
	memory_mover.restore(&grant);
	CHECK(memory_mover.step());
	CHECK(!memory_mover.restored());
	memory_mover.stop();
	fake_driver.hold_events = false;
	step_until_idle();
	CHECK(fake_driver.used[0] < 24 * MIB);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
}

static void all_kinds_come_with_one_lease(void)
{
	CUdeviceptr pointer;

	hold();
	pointer = swapped_block(24 * MIB, 1);
	allocate(managed, 8 * MIB);
	allocate(&fixed_memory, 8 * MIB);
	hand_over();
	CHECK(fake_driver.used[0] == 8 * MIB);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
	CHECK(fake_driver.prefetched == 8 * MIB);
	CHECK(memory_mover.brought().bytes == 32 * MIB);
}

/* -- the store ------------------------------------------------------------------------------ */

static struct {
	unsigned int later; /* so many answers more are LATER */
	unsigned int room;  /* so many copies may be taken */
	unsigned int taken, given;
} stand_in;

static void stand_in_give(struct copy *copy);
static struct store stand_in_store;

static enum store_answer stand_in_take(size_t size, struct copy **out)
{
	if (stand_in.later) {
		stand_in.later--;
		return STORE_LATER;
	}
	if (stand_in.taken - stand_in.given == stand_in.room)
		return STORE_NONE;
	*out = malloc(sizeof(**out) + sizeof((*out)->parts[0]));
	CHECK(*out);
	(*out)->store = &stand_in_store;
	(*out)->n = 1;
	(*out)->parts[0] = (struct part){malloc(size), size};
	stand_in.taken++;
	return STORE_READY;
}

static void stand_in_give(struct copy *copy)
{
	CHECK(copy->store == &stand_in_store);
	free(copy->parts[0].at);
	free(copy);
	stand_in.given++;
}

static void stand_in_pin(const struct copy *copy)
{
	CHECK(copy->store == &stand_in_store);
}

/* With room for so many segments. */
static void use_stand_in(unsigned int room)
{
	stand_in_store = pinned_store;
	stand_in_store.take = stand_in_take;
	stand_in_store.give = stand_in_give;
	stand_in_store.pin = stand_in_pin;
	stand_in.room = room;
	swap_store = &stand_in_store;
}

static void a_store_may_answer_later(void)
{
	CUdeviceptr pointer;

	use_stand_in(100);
	hold();
	pointer = swapped_block(24 * MIB, 1);
	stand_in.later = 5;
	hand_over();
	CHECK(stand_in.later == 0);
	CHECK(fake_driver.used[0] == 0);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
}

static void what_has_no_copy_stays(void)
{
	CUdeviceptr pointer;

	use_stand_in(2);
	hold();
	pointer = swapped_block(24 * MIB, 1);
	hand_over();
	CHECK(fake_driver.used[0] == 16 * MIB);
	CHECK(said().fixed == 16 * MIB && said().bytes == 8 * MIB);
	CHECK(fake_rooms.complaints == 1);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
}

static void copies_go_back_to_their_store(void)
{
	CUdeviceptr first, second;

	use_stand_in(100);
	hold();
	first = swapped_block(24 * MIB, 1);
	hand_over();
	CHECK(stand_in.taken == 6 && !stand_in.given);
	swap_store = &pinned_store;
	hold();
	second = swapped_block(24 * MIB, 2);
	hand_over();
	hold();
	CHECK(filled(first, 24 * MIB, 1) && filled(second, 24 * MIB, 2));
	OK(cuMemFree_v2(first));
	OK(cuMemFree_v2(second));
	CHECK(stand_in.given == stand_in.taken);
	check_empty();
}

static void what_cannot_be_pinned_stays(void)
{
	CUdeviceptr pointer;

	hold();
	pointer = swapped_block(24 * MIB, 1);
	fake_driver.refuse_pinning = true;
	hand_over();
	CHECK(fake_driver.used[0] == 24 * MIB);
	CHECK(said().fixed == 24 * MIB);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
	fake_driver.refuse_pinning = false;
	hand_over();
	CHECK(fake_driver.used[0] == 0);
	CHECK(fake_driver.pinned >= 24 * MIB);
}

/* -- which ------------------------------------------------------------------------------------- */

#define CASES(CASE)                                                                                \
	CASE(it_comes_back_in_steps)                                                               \
	CASE(a_revoke_ends_it)                                                                     \
	CASE(only_what_fits_comes_the_newest_first)                                                \
	CASE(its_context_may_end_meanwhile)                                                        \
	CASE(freed_memory_is_passed_over)                                                          \
	CASE(what_came_is_said_once)                                                               \
	CASE(nothing_is_said_of_nothing)                                                           \
	CASE(it_comes_beside_work)                                                                 \
	CASE(a_second_refill_begins_anew)                                                          \
	CASE(devices_of_others_are_left_alone)                                                     \
	CASE(only_what_others_lack_leaves)                                                         \
	CASE(what_nobody_touched_is_not_copied_again)                                              \
	CASE(it_comes_before_its_turn)                                                             \
	CASE(a_restore_goes_on_after_a_revoke)                                                     \
	CASE(all_kinds_come_with_one_lease)                                                        \
	CASE(a_store_may_answer_later)                                                             \
	CASE(what_has_no_copy_stays)                                                               \
	CASE(copies_go_back_to_their_store)                                                        \
	CASE(what_cannot_be_pinned_stays)

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
#define CASE(name) {#name, name},
    CASES(CASE)
#undef CASE
};

int main(int argc, char **argv)
{
	fake_rooms.swaps = true;
	fake_driver.current = fake_context(0);
	device_uuid(0);
	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		if (argc != 2)
			printf("%s\n", cases[c].name);
		else if (!strcmp(cases[c].name, argv[1])) {
			cases[c].run();
			return 0;
		}
	}
	return argc == 2;
}
