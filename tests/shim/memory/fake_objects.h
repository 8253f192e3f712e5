/* fake_objects.h: what stands behind the fake driver's addresses, for its own files. */
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
	unsigned int physical; /* the handle of what is mapped here */
};

extern pthread_mutex_t fake_lock; /* of all of them, and of fake_driver */
extern struct fake_object fake_objects[MAX_OBJECTS];

#define LOCKED(code)                                                                               \
	do {                                                                                       \
		pthread_mutex_lock(&fake_lock);                                                    \
		code;                                                                              \
		pthread_mutex_unlock(&fake_lock);                                                  \
	} while (0)

/* Callers hold the lock: */
struct fake_object *fake_add(enum fake_what what, void *base, size_t size, CUdevice device);
struct fake_object *fake_find(enum fake_what what, uintptr_t base);
bool fake_within(enum fake_what what, uintptr_t base, size_t size);
bool fake_take_room(CUdevice device, size_t size);
/* Host memory that is pinned no more; words: of the fault where it is not. Returns its size. */
size_t fake_unpin(void *at, const char *words);
/* Without it: */
void *fake_pages(size_t size, int access); /* NULL: the host has none */
bool fake_fails(void);                     /* the test wants this call to fail */
CUdevice fake_current_device(void);        /* below 0: no context is current */
void fake_dies(const char *what);

#endif
