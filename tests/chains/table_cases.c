/* table_cases.c: what a chain's table has to stand, one case a call: CASE. Prints what is wrong. */
#include "holds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFERS 3
#define SIZE 4096
#define KEEP_S 2

static struct chain_table *table;
static struct chain_holds one, two, three; /* components, of numbers 0, 1 and 2 */

static void expect(bool true_, const char *what)
{
	if (true_)
		return;
	printf("%s\n", what);
	exit(1);
}

static struct chain_holds *joined(struct chain_holds *holds, uint32_t member)
{
	holds->table = table;
	holds->member = member;
	return holds;
}

static void begin(void)
{
	table = aligned_alloc(CHAIN_LINE, sizeof(*table));
	expect(table, "no memory");
	memset(table, 0, sizeof(*table));
	expect(table_begin(table, BUFFERS * CHAIN_UNIT, KEEP_S), "no random numbers");
	for (uint32_t i = 0; i < BUFFERS; i++)
		table_offer(table, i, CHAIN_UNIT);
	joined(&one, 0);
	joined(&two, 1);
	joined(&three, 2);
}

static uint32_t held(struct chain_holds *holds)
{
	uint32_t index = holds_find(holds, SIZE, true);

	expect(index < CHAIN_BUFFERS && holds_begin(holds, index, SIZE), "no buffer was free");
	return index;
}

static void tick(int times)
{
	while (times--)
		table_tick(table, 1 + 2 + 4);
}

static bool is_free(uint32_t index)
{
	return use_is_free(use_now(&table->buffers[index]));
}

/* -- the work of who has put a buffer ---------------------------------------------------------- */

/* Two components have the same buffer, and a third one is to get it. */
static uint32_t both_hold(struct chain_handle *handle)
{
	uint32_t index = held(&one);
	uint64_t size;

	expect(!holds_give(&one, index, 3, false, handle), "not given");
	expect(!holds_take(&one, handle, &size) && !holds_take(&two, handle, &size), "not taken");
	return index;
}

static void put_beside_work(void)
{
	struct chain_handle first, later, now;
	uint32_t index = both_hold(&first);
	uint64_t size;

	expect(!holds_give(&one, index, 1, true, &later), "not given before its work is over");
	expect(!holds_give(&two, index, 1, false, &now), "not given");
	expect(holds_take(&three, &now, &size) == GPU_LEASE_CHAIN_LATE,
	       "it is got while one of those who put it works on it");
	holds_ready(&one, index, later.number);
	expect(!holds_take(&three, &now, &size), "it is not got when the work is over");
}

static void work_of_two(void)
{
	struct chain_handle first, later, now;
	uint32_t index = both_hold(&first);
	uint64_t size;

	expect(!holds_give(&one, index, 1, true, &later), "not given before its work is over");
	if (holds_give(&two, index, 1, true, &now))
		return; /* it has to wait for its work first */
	holds_ready(&two, index, now.number);
	expect(holds_take(&three, &now, &size) == GPU_LEASE_CHAIN_LATE,
	       "it is got while one of those who put it works on it");
}

static void long_work(void)
{
	struct chain_handle later;
	uint32_t index = held(&one);
	uint64_t size;

	expect(!holds_give(&one, index, 1, true, &later), "not given before its work is over");
	expect(holds_end(&one, index), "not held");
	tick(KEEP_S + 1);
	expect(!is_free(index), "it is free while who has put it works on it");
	holds_ready(&one, index, later.number);
	tick(1);
	expect(!holds_take(&two, &later, &size), "it is stale as soon as the work is over");
}

/* Of openssl mac -macopt hexkey:000102...0f -macopt size:16 SipHash, for the 16 bytes of the
 * numbers.
 */
static void secret(void)
{
	static const uint8_t expected[16] = {0x15, 0xef, 0xa1, 0x93, 0xea, 0x9a, 0x45, 0x68,
	                                     0x0c, 0x65, 0x99, 0x2b, 0xef, 0xe2, 0x01, 0x6f};
	uint64_t found[2];

	for (uint8_t i = 0; i < 16; i++)
		((uint8_t *)table->key)[i] = i;
	table_secret(table, 0x0b0a0908, UINT64_C(0x0706050403020100), found);
	expect(!memcmp(found, expected, sizeof(found)), "it is not SipHash-2-4");
}

/* -- time -------------------------------------------------------------------------------------- */

/* As one does that is stopped between its two writes. */
static void stopped_while_it_puts(void)
{
	struct chain_handle handle;
	uint32_t index = held(&one);
	uint64_t size;

	expect(!holds_give(&one, index, 1, false, &handle), "not given");
	table->buffers[index].put_at = table->ticks - KEEP_S - 1;
	tick(1);
	expect(!holds_take(&two, &handle, &size), "it is stale at once");
}

/* -- what an enemy writes into the table ------------------------------------------------------- */

static void top_of_no_buffer(void)
{
	table->top = UINT32_MAX;
	tick(1);
	table_forget(table, 5);
	expect(held(&one) < CHAIN_BUFFERS, "no buffer is found");
}

static void size_of_no_memory(void)
{
	table->limit = UINT64_MAX;
	expect(table_room(table, UINT64_MAX) != 1, "");
	expect(table_room(table, UINT64_C(1) << 63) >= UINT64_C(1) << 63, "too little room");
}

static void work_of_nobody(void)
{
	struct chain_use use = {.memory = 1, .flight = 1, .putter = 100};

	table->buffers[0].cell.use = use;
	tick(KEEP_S + 2);
	expect(is_free(0), "a buffer waits for ever for a component that is not there");
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {{"put beside work", put_beside_work},
             {"work of two", work_of_two},
             {"secret", secret},
             {"long work", long_work},
             {"stopped while it puts", stopped_while_it_puts},
             {"top of no buffer", top_of_no_buffer},
             {"size of no memory", size_of_no_memory},
             {"work of nobody", work_of_nobody}};

int main(int argc, char **argv)
{
	setbuf(stdout, NULL);
	begin();
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (argc == 2 && !strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			return 0;
		}
	printf("usage: table_cases CASE\n");
	return 2;
}
