/* groups.c: for tests: a library that stands between libcuda.so.1 and its ioctl. It notes the
 * channel groups that libcuda makes in this process, and offers the controls of them. A program
 * loads it, and calls groups_watch() before cuInit. With LD_PRELOAD, and EMUGPU_SLICE_US in the
 * environment, it gives that slice to each compute group of a program that is linked with libcuda.
 */
#include "import_table.h"
#include "rm.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MOST 1024
#define UNKNOWN UINT32_C(0xffffffff) /* no status: the call did not reach a kernel */

static struct object {
	int fd;
	uint32_t client, parent, handle, class, engine;
} objects[MOST];
static int n_objects;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __typeof__(&ioctl) next; /* what stood in the import table */
static uint64_t slice_us;       /* for each compute group; 0: as libcuda sets it */

static void note(int fd, const struct rm_alloc *a)
{
	if (n_objects == MOST || a->status)
		return;
	objects[n_objects] = (struct object){fd, a->root, a->parent, a->object, a->class, 0};
	if (a->class == RM_GROUP)
		objects[n_objects].engine = ((const struct rm_group *)(uintptr_t)a->parms)->engine;
	n_objects++;
}

static void forget(const struct rm_free *f)
{
	for (int i = 0; i < n_objects; i++)
		if (objects[i].client == f->root && objects[i].handle == f->object) {
			memmove(&objects[i], &objects[i + 1],
			        (size_t)(--n_objects - i) * sizeof(objects[0]));
			return;
		}
}

/* libcuda has set the slice that it wants. */
static void correct(int fd, const struct rm_control *c)
{
	struct rm_control again = *c;

	again.params = (uint64_t)(uintptr_t)&slice_us;
	if (c->cmd == RM_GROUP_SET_SLICE)
		(void)next(fd, _IOWR('F', RM_CONTROL, struct rm_control), &again);
}

static int watch(int fd, unsigned long request, ...)
{
	void *argument;
	va_list rest;
	int result;

	va_start(rest, request);
	argument = va_arg(rest, void *);
	va_end(rest);
	result = next(fd, request, argument);
	if (!result && slice_us && request == _IOWR('F', RM_CONTROL, struct rm_control))
		correct(fd, argument);
	pthread_mutex_lock(&lock);
	if (!result && request == _IOWR('F', RM_ALLOC, struct rm_alloc))
		note(fd, argument);
	if (!result && request == _IOWR('F', RM_FREE, struct rm_free))
		forget(argument);
	pthread_mutex_unlock(&lock);
	return result;
}

/* From now on; returns 0, or -1: libcuda.so.1 is not loaded, or does not call ioctl. */
int groups_watch(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	void *inside = library ? dlsym(library, "cuInit") : NULL;

	if (!inside)
		return -1;
	/* A call of another thread may come as soon as the entry is there. */
	next = ioctl;
	next =
	    (__typeof__(next))(uintptr_t)import_replace(inside, "ioctl", (void *)(uintptr_t)watch);
	return next ? 0 : -1;
}

/* The i-th object of a class, in the order in which they were made. */
static struct object *object(uint32_t class, int i)
{
	for (int k = 0; k < n_objects; k++)
		if (objects[k].class == class && !i--)
			return &objects[k];
	return NULL;
}

static uint32_t control(const struct object *o, uint32_t cmd, void *params, uint32_t size)
{
	struct rm_control c = {.client = o ? o->client : 0,
	                       .object = o ? o->handle : 0,
	                       .cmd = cmd,
	                       .params = (uint64_t)(uintptr_t)params,
	                       .size = size};

	if (!o || next(o->fd, _IOWR('F', RM_CONTROL, struct rm_control), &c))
		return UNKNOWN;
	return c.status;
}

int groups_count(uint32_t class)
{
	int n = 0;

	while (object(class, n))
		n++;
	return n;
}

uint32_t groups_engine(int i)
{
	return object(RM_GROUP, i)->engine;
}

uint32_t groups_control(int i, uint32_t cmd, void *params, uint32_t size)
{
	return control(object(RM_GROUP, i), cmd, params, size);
}

/* On the i-th subdevice. */
uint32_t groups_device_control(int i, uint32_t cmd, void *params, uint32_t size)
{
	return control(object(RM_SUBDEVICE, i), cmd, params, size);
}

/* The handles of a group's channels; returns how many. */
int groups_channels(int i, uint32_t *client, uint32_t *handles)
{
	const struct object *group = object(RM_GROUP, i);
	int n = 0;

	*client = group->client;
	for (int k = 0; k < n_objects; k++)
		if (objects[k].client == group->client && objects[k].parent == group->handle)
			handles[n++] = objects[k].handle;
	return n;
}

static uint32_t turn(const struct object *group, struct rm_disable *d)
{
	for (int k = 0; k < n_objects; k++)
		if (objects[k].class == RM_SUBDEVICE && objects[k].parent == group->parent &&
		    objects[k].client == group->client)
			return control(&objects[k], RM_DISABLE_CHANNELS, d, sizeof(*d));
	return UNKNOWN;
}

/* Stops (off = 1) or starts all channels of a group. */
uint32_t groups_turn(int i, int off)
{
	struct rm_disable d = {.disable = (uint8_t)off};

	d.n = (uint32_t)groups_channels(i, &d.clients[0], d.channels);
	for (uint32_t k = 1; k < d.n; k++)
		d.clients[k] = d.clients[0];
	return turn(object(RM_GROUP, i), &d);
}

uint32_t groups_set(int i, uint64_t us)
{
	return groups_control(i, RM_GROUP_SET_SLICE, &us, sizeof(us));
}

__attribute__((constructor)) static void preloaded(void)
{
	const char *us = getenv("EMUGPU_SLICE_US");

	if (us) {
		slice_us = strtoul(us, NULL, 10);
		if (groups_watch())
			abort();
	}
}
