/* checks.h: what the programs of these tests share: checks, and a lease that is given and taken as
 * the daemon does. */
#ifndef CHECKS_H
#define CHECKS_H

#include "driver/devices.h"
#include "fake_driver.h"
#include "fake_rooms.h"
#include "memory/kinds.h"
#include "memory/limit.h"
#include "memory/reclaim.h"
#include "memory/used.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: this is not true: %s\n", __FILE__, __LINE__,       \
			        #condition);                                                       \
			abort();                                                                   \
		}                                                                                  \
	} while (0)
#define OK(call) CHECK((call) == CUDA_SUCCESS)

/* -- memory ------------------------------------------------------------------------------ */

static inline CUdeviceptr allocate(const struct memory_kind *kind, size_t size)
{
	CUdeviceptr pointer = 0;

	OK(memory_allocate(kind, &pointer, size, 0, NULL));
	CHECK(pointer);
	return pointer;
}

static inline uint8_t *bytes_at(CUdeviceptr pointer)
{
	return (uint8_t *)(uintptr_t)pointer;
}

static inline void fill(CUdeviceptr pointer, size_t size, uint8_t seed)
{
	for (size_t i = 0; i < size; i++)
		bytes_at(pointer)[i] = (uint8_t)(seed + i * 31 + (i >> 12));
}

static inline bool filled(CUdeviceptr pointer, size_t size, uint8_t seed)
{
	for (size_t i = 0; i < size; i++)
		if (bytes_at(pointer)[i] != (uint8_t)(seed + i * 31 + (i >> 12)))
			return false;
	return true;
}

/* What the daemon is told of the one device in use. */
static inline struct gl_device reported(void)
{
	struct gl_device devices[GL_MAX_DEVICES];

	CHECK(memory_report(devices) == 1);
	return devices[0];
}

/* All bytes that the daemon is told of, fixed or not. */
static inline uint64_t total(void)
{
	struct gl_device device = reported();

	return device.bytes + device.fixed;
}

/* The process has no memory, and the driver has given it none. */
static inline void check_empty(void)
{
	memory_reclaim(true);
	CHECK(total() == 0);
	CHECK(memory_used(0) == 0);
	CHECK(fake_driver.used[0] == 0);
	CHECK(fake_driver.managed == 0);
}

/* A grant of the first device. */
static inline struct gl_grant grant_of(uint64_t bytes)
{
	struct gl_grant grant = {.n_devices = 1};

	memcpy(grant.devices[0].uuid, device_uuid(0), GL_UUID_BYTES);
	grant.devices[0].bytes = bytes;
	return grant;
}

static inline struct gl_memory amount_of(uint64_t bytes)
{
	struct gl_memory amount = {.n_devices = 1};

	memcpy(amount.devices[0].uuid, device_uuid(0), GL_UUID_BYTES);
	amount.devices[0].bytes = bytes;
	return amount;
}

/* The lease is granted: all memory is restored. */
static inline void hold(void)
{
	struct gl_grant grant = grant_of(fake_rooms.limit);

	memory_mover.restore(&grant);
	while (!memory_mover.restore_finished())
		memory_mover.step();
	while (memory_mover.step())
		;
}

/* The lease is over: all memory that can be evicted is evicted. */
static inline void hand_over(void)
{
	struct gl_memory all = amount_of(fake_rooms.limit);

	memory_mover.allow_eviction();
	memory_mover.evict(&all);
	while (memory_mover.step())
		;
}

#endif
