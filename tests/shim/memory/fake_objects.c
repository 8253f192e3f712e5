/* fake_objects.c: the memory that the fake driver has given. */
#include "fake_objects.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
struct fake_object fake_objects[MAX_OBJECTS];

void fake_dies(const char *what)
{
	fprintf(stderr, "fake driver: %s\n", what);
	abort();
}

CUdevice fake_current_device(void)
{
	for (int d = 0; d < FAKE_DEVICES; d++)
		if (fake_driver.current == fake_context(d) ||
		    fake_driver.current == fake_second_context(d))
			return d;
	return -1;
}

struct fake_object *fake_add(enum fake_what what, void *base, size_t size, CUdevice device)
{
	for (int i = 0; i < MAX_OBJECTS; i++) {
		if (fake_objects[i].what != FAKE_NOTHING)
			continue;
		fake_objects[i] = (struct fake_object){what,   (uintptr_t)base,     size,
		                                       device, fake_driver.current, 0};
		return &fake_objects[i];
	}
	fake_dies("too many fake_objects");
	return NULL;
}

struct fake_object *fake_find(enum fake_what what, uintptr_t base)
{
	for (int i = 0; i < MAX_OBJECTS; i++)
		if (fake_objects[i].what == what && fake_objects[i].base == base)
			return &fake_objects[i];
	return NULL;
}

size_t fake_unpin(void *at, const char *words)
{
	struct fake_object *object = fake_find(FAKE_PINNED, (uintptr_t)at);

	if (!object)
		fake_dies(words);
	fake_driver.pinned -= object->size;
	object->what = FAKE_NOTHING;
	return object->size;
}

bool fake_within(enum fake_what what, uintptr_t base, size_t size)
{
	for (int i = 0; i < MAX_OBJECTS; i++)
		if (fake_objects[i].what == what && base >= fake_objects[i].base &&
		    base + size <= fake_objects[i].base + fake_objects[i].size)
			return true;
	return false;
}

bool fake_take_capacity(CUdevice device, size_t size)
{
	if (fake_driver.used[device] + size > fake_driver.capacity)
		return false;
	fake_driver.used[device] += size;
	return true;
}

void *fake_pages(size_t size, int access)
{
	void *at = mmap(NULL, size, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* fail_after counts down to the call that fails. */
bool fake_fails(void)
{
	bool now;

	LOCKED(now = fake_driver.fail_after && --fake_driver.fail_after == 0);
	return now;
}
