/* groups.h: the channel groups of this process, as data: what the driver's library has made.
 *
 * A context has four groups on its device: one for compute and three for copy engines. Streams and
 * green contexts make none. Objects are known by their numbers (handles), which are unique in their
 * client; a client is what the kernel's module calls one user of it.
 *
 * When the driver takes a process off its GPU (a checkpoint), the library frees the whole client;
 * when it restores the process it makes a new one, with objects of the same numbers, and sets no
 * slices: what it had set of a group is kept here.
 *
 * The functions take LOCK_CHANNELS, unless they say otherwise. None calls the kernel.
 */
#ifndef GPU_LEASE_GROUPS_H
#define GPU_LEASE_GROUPS_H

#include "base/watch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOST_CONTEXTS 64
#define MOST_GROUPS (4 * MOST_CONTEXTS)
#define MOST_CHANNELS 2048
#define MOST_SUBDEVICES 128
#define GPU_UUID_BYTES 16

/* A free place in a table has object 0; a group that went with its client has client 0. */
struct group {
	int fd; /* the descriptor by which the library made it */
	uint32_t client, device, object, engine;
	bool scheduled;    /* the library has put it to work */
	uint64_t made_us;  /* the slice that the library has set; 0: none yet */
	uint64_t slice_us; /* the one that it has now; 0: not known */
};

struct channel {
	uint32_t client, group, object;
	bool off;    /* it is taken off the hardware */
	bool frozen; /* of a copy engine: it shall be */
};

struct subdevice {
	int fd;
	uint32_t client, device, object;
	bool known; /* uuid has been asked for */
	uint8_t uuid[GPU_UUID_BYTES];
};

/* The tables, for who holds LOCK_CHANNELS. */
struct groups {
	struct group groups[MOST_GROUPS];
	struct channel channels[MOST_CHANNELS];
	struct subdevice subdevices[MOST_SUBDEVICES];
	bool overflow; /* a table was full, so not all is known */
};
struct groups *groups_take(void);
void groups_give(void);

/* With the lock held. NULL: there is none. */
struct group *group_find(struct groups *all, uint32_t client, uint32_t object);
struct channel *channel_find(struct groups *all, uint32_t client, uint32_t object);
struct subdevice *subdevice_find(struct groups *all, uint32_t client, uint32_t object);
/* The subdevice of the group's device. */
struct subdevice *subdevice_of(struct groups *all, const struct group *group);

/* The library has made, or freed, an object. */
void groups_add_group(const struct group *group);
void groups_add_channel(const struct channel *channel);
void groups_add_subdevice(const struct subdevice *subdevice);
void groups_free(uint32_t client, uint32_t object);
/* The library has put an object to work, if it is a group. */
void groups_scheduled(uint32_t client, uint32_t object);
/* The library has set the slice of an object, if it is a group. */
void groups_slice_made(uint32_t client, uint32_t object, uint64_t us);

/* Called after each change, by a thread of the program and perhaps with locks held. */
WATCH_LIST(group_watches, void(void));
#define GROUP_WATCH(changed) WATCH(group_watches, changed)

#endif
