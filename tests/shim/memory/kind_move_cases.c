/* kind_move_cases.c: what every kind of memory promises about handoffs and reports. */
#include "kind_cases.h"

void changes_are_told(void)
{
	unsigned int before = atomic_load(&fake_rooms.changes);
	CUdeviceptr pointer = allocate(kind, 4 * MIB);

	CHECK(atomic_load(&fake_rooms.changes) > before);
	before = atomic_load(&fake_rooms.changes);
	OK(cuMemFree_v2(pointer));
	CHECK(atomic_load(&fake_rooms.changes) > before);
}

/* Memory with a mover is evicted and restored as it was. */
void handoff(void)
{
	CUdeviceptr large = allocate(kind, 20 * MIB), small = allocate(kind, 4096);
	uint64_t before = fake_driver.used[0];

	for (uint8_t turn = 0; turn < 3; turn++) {
		fill(large, 20 * MIB, turn);
		fill(small, 4096, (uint8_t)(turn + 7));
		fake_rooms.submitted++;
		hand_over();
		CHECK(fake_driver.used[0] == (kind->mover ? 0 : before));
		CHECK(total() >= 20 * MIB + 4096);
		hold();
		CHECK(fake_driver.used[0] == before);
		CHECK(filled(large, 20 * MIB, turn));
		CHECK(filled(small, 4096, (uint8_t)(turn + 7)));
	}
	OK(cuMemFree_v2(large));
	OK(cuMemFree_v2(small));
	check_empty();
}

void free_while_others_hold(void)
{
	CUdeviceptr large = allocate(kind, 20 * MIB), small = allocate(kind, 4096), later;

	hand_over();
	OK(cuMemFree_v2(large));
	OK(cuMemFree_v2(small));
	later = allocate(kind, 8 * MIB); /* it gets addresses now, and memory with the lease */
	hold();
	fill(later, 8 * MIB, 5);
	CHECK(filled(later, 8 * MIB, 5));
	OK(cuMemFree_v2(later));
	check_empty();
}

void report_adds_up(void)
{
	CUdeviceptr pointer = allocate(kind, 6 * MIB);
	struct gl_device device = reported();

	CHECK(!memcmp(device.uuid, device_uuid(0), GL_UUID_BYTES));
	CHECK(device.resident <= device.bytes);
	CHECK(kind->mover ? device.bytes == 6 * MIB : device.fixed == 6 * MIB);
	OK(cuMemFree_v2(pointer));
}
