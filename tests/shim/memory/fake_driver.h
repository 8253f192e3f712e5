/* fake_driver.h: a driver in this process, for tests that link a part of the interposer alone.
 *
 * Device memory is memory of the process, at the addresses that are mapped, so a test
 * writes and reads it directly; who touches what is not mapped gets SIGSEGV. Copies are
 * made at once. An event has happened unless the test holds events back.
 */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_DEVICES 2
#define FAKE_UNIT (UINT64_C(2) << 20) /* of physical memory */
#define FAKE_CAPACITY (UINT64_C(128) << 20)

extern struct fake_driver {
	uint64_t capacity;            /* of each device */
	uint64_t used[FAKE_DEVICES];  /* plain memory, and what was created */
	uint64_t managed;             /* bytes of managed memory */
	uint64_t prefetched;          /* bytes, so far */
	CUdeviceptr first_prefetch;   /* where the first one began */
	uint64_t copied_out;          /* bytes to the host */
	uint64_t pinned;              /* bytes of the host that are registered */
	unsigned int streams, events; /* that exist */
	bool no_managed, no_mapping;  /* functions that this driver lacks */
	bool refuse_pinning, refuse_modules, refuse_launches;
	uint64_t wrong_fingerprints; /* bits of them that are turned */
	uint64_t looked_at;          /* bytes whose fingerprints were computed */
	unsigned int modules;        /* that are loaded */
	bool hold_events;            /* no event happens; who waits for one ends the program */
	unsigned int fail_after;     /* 1: the next call that makes or maps memory fails, once */
	CUcontext current;           /* of every thread */
	CUstreamCaptureMode mode, pinned_mode; /* now, and when host memory was pinned last */
} fake_driver;

/* The context of a device that it has at the beginning, and another one. */
CUcontext fake_context(CUdevice device);
CUcontext fake_second_context(CUdevice device);
void fake_end_context(CUcontext context); /* with the memory that the driver gave in it */
void *fake_pinned(void);                  /* the first of the host's memory that is registered */
uint8_t fake_uuid_byte(CUdevice device);  /* the first byte of its UUID */

#endif
