/* fake_objects.h: the memory that the fake driver has given, for its own files. */
#ifndef FAKE_OBJECTS_H
#define FAKE_OBJECTS_H

#include "fake_driver.h"

#include <pthread.h>
#include <stddef.h>

#define MAX_OBJECTS 4096

enum fake_what {
	FAKE_NOTHING,
	FAKE_PLAIN, /* allocations */
	FAKE_MANAGED,
	FAKE_RESERVED, /* addresses */
	FAKE_MAPPED,   /* physical memory, at reserved addresses */
	FAKE_PINNED    /* memory of the host */
};

struct fake_object {
	enum fake_what what;
	uintptr_t base;
	size_t size;
	CUdevice device;
	CUcontext context;
	unsigned int physical; /* FAKE_MAPPED: the handle of the physical memory */
};

extern pthread_mutex_t fake_lock; /* guards all objects, and fake_driver */
extern struct fake_object fake_objects[MAX_OBJECTS];

#define LOCKED(code)                                                                               \
	do {                                                                                       \
		pthread_mutex_lock(&fake_lock);                                                    \
		code;                                                                              \
		pthread_mutex_unlock(&fake_lock);                                                  \
	} while (0)

/* -- the caller holds the lock -------------------------------------------------------- */

struct fake_object *fake_add(enum fake_what what, void *base, size_t size, CUdevice device);
struct fake_object *fake_find(enum fake_what what, uintptr_t base);
bool fake_within(enum fake_what what, uintptr_t base, size_t size);
/* Takes so much of the device's capacity. Returns false if it has less. */
bool fake_take_capacity(CUdevice device, size_t size);
/* Removes pinned host memory, and returns its size. Ends the program with `fault` if it is not
 * pinned. */
size_t fake_unpin(void *at, const char *fault);

/* -- the caller does not hold the lock ------------------------------------------------- */

/* Pages of the process; NULL: the host has none. */
void *fake_pages(size_t size, int access);
/* Does the test want this call to fail? */
bool fake_fails(void);
/* Below 0: no context is current. */
CUdevice fake_current_device(void);
void fake_dies(const char *what);

#endif
