/* fake_driver.h: a driver in this process, for tests that link a part of the interposer alone.
 *
 * Device memory is memory of the process, at the same addresses, so a test reads and writes it
 * directly. An access to addresses without memory ends the test with SIGSEGV. Copies are made at
 * once. Every event has happened, unless the test holds events back.
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
	uint64_t used[FAKE_DEVICES];  /* bytes of cuMemAlloc and cuMemCreate */
	uint64_t managed;             /* bytes of managed memory */
	uint64_t prefetched;          /* bytes, so far */
	CUdeviceptr first_prefetch;   /* the address of the first prefetch */
	uint64_t copied_out;          /* bytes to the host */
	unsigned int copies_asked;    /* calls to copy to the host */
	uint64_t pinned;              /* bytes of the host that are registered */
	uint64_t pinned_most;         /* no more are registered than so many; 0: any number */
	unsigned int streams, events; /* that exist */
	bool no_managed, no_mapping;  /* functions that this driver lacks */
	bool refuse_pinning, refuse_streams, refuse_copies, refuse_modules, refuse_launches;
	uint64_t wrong_fingerprints; /* these bits of fingerprints are inverted */
	uint64_t looked_at;          /* bytes whose fingerprints were computed */
	unsigned int modules;        /* that are loaded */
	bool hold_events;            /* no event happens; a wait for one ends the program */
	unsigned int goes_on;        /* a bit for each device whose events happen all the same */
	unsigned int fail_after;     /* 1: the next call that makes or maps memory fails, once */
	CUcontext current;           /* in every thread */
	CUstreamCaptureMode mode;    /* of every thread */
	CUstreamCaptureMode pinned_mode; /* the mode when host memory was last pinned */
} fake_driver;

/* The context that a device has at the beginning, and another one of the device. */
CUcontext fake_context(CUdevice device);
CUcontext fake_second_context(CUdevice device);
/* Ends a context, and with it the memory that the driver has allocated in it. */
void fake_end_context(CUcontext context);
/* The first host memory that is registered. */
void *fake_pinned(void);
/* The first byte of the device's UUID. */
uint8_t fake_uuid_byte(CUdevice device);

#endif
