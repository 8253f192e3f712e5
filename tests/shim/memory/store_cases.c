/* store_cases.c: the store of what has left (shim/memory/swap/store.h). */
#include "mover_cases.h"

#include "memory/swap/store.h"

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

void a_store_may_answer_later(void)
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

void what_has_no_copy_stays(void)
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

void copies_go_back_to_their_store(void)
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

void what_cannot_be_pinned_stays(void)
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
