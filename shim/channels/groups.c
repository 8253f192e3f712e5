/* groups.c: the tables of channel groups, channels and subdevices. */
#include "channels/groups.h"

#include "base/fork.h"
#include "base/locks.h"

#include <string.h>

static struct lock lock = LOCK(LOCK_CHANNELS);
static struct groups all;

struct groups *groups_take(void)
{
	lock_take(&lock);
	return &all;
}

void groups_give(void)
{
	lock_give(&lock);
}

static void tell(void)
{
	for_each_watch(group_watches, watch) (*watch)();
}

/* -- finding; the object of each kind of entry is unique in its client ------------------ */

#define FIND(table, client_, object_)                                                              \
	({                                                                                         \
		__typeof__(&(table)[0]) found = NULL;                                              \
		for (size_t i = 0; i < sizeof(table) / sizeof((table)[0]) && !found; i++)          \
			if ((table)[i].object == (object_) && (table)[i].client == (client_))      \
				found = &(table)[i];                                               \
		found;                                                                             \
	})
#define FREE_PLACE(table)                                                                          \
	({                                                                                         \
		__typeof__(&(table)[0]) free_ = NULL;                                              \
		for (size_t i = 0; i < sizeof(table) / sizeof((table)[0]) && !free_; i++)          \
			if (!(table)[i].object)                                                    \
				free_ = &(table)[i];                                               \
		all.overflow |= !free_;                                                            \
		free_;                                                                             \
	})

struct group *group_find(struct groups *of, uint32_t client, uint32_t object)
{
	return FIND(of->groups, client, object);
}

struct channel *channel_find(struct groups *of, uint32_t client, uint32_t object)
{
	return FIND(of->channels, client, object);
}

struct subdevice *subdevice_find(struct groups *of, uint32_t client, uint32_t object)
{
	return FIND(of->subdevices, client, object);
}

struct subdevice *subdevice_of(struct groups *of, const struct group *group)
{
	for (size_t i = 0; i < MOST_SUBDEVICES; i++)
		if (of->subdevices[i].object && of->subdevices[i].client == group->client &&
		    of->subdevices[i].device == group->device)
			return &of->subdevices[i];
	return NULL;
}

/* -- what the library does ---------------------------------------------------------------- */

/* A group that went with its client comes again. */
static struct group *come_again(const struct group *group)
{
	struct group *place = group_find(&all, 0, group->object);

	if (!place || place->engine != group->engine)
		return NULL;
	place->fd = group->fd;
	place->client = group->client;
	place->device = group->device;
	return place;
}

void groups_add_group(const struct group *group)
{
	struct group *place;

	lock_take(&lock);
	if (!come_again(group)) {
		place = FREE_PLACE(all.groups);
		if (place)
			*place = *group;
	}
	lock_give(&lock);
	tell();
}

void groups_add_channel(const struct channel *channel)
{
	struct channel *place;
	bool ours;

	lock_take(&lock);
	ours = group_find(&all, channel->client, channel->group);
	place = ours ? FREE_PLACE(all.channels) : NULL;
	if (place)
		*place = *channel;
	lock_give(&lock);
	if (ours)
		tell();
}

void groups_add_subdevice(const struct subdevice *subdevice)
{
	struct subdevice *place;

	lock_take(&lock);
	place = FREE_PLACE(all.subdevices);
	if (place)
		*place = *subdevice;
	lock_give(&lock);
}

/* Is the entry the object itself, below it, or of the client that is freed? */
static bool goes(uint32_t entry_client, uint32_t entry, uint32_t parent, uint32_t client,
                 uint32_t object)
{
	return entry && entry_client == client &&
	       (entry == object || parent == object || object == client);
}

static void let_go(struct group *group, bool may_come_again)
{
	if (!may_come_again) {
		*group = (struct group){0};
		return;
	}
	group->client = group->device = 0;
	group->slice_us = 0;
	group->scheduled = false;
}

void groups_free(uint32_t client, uint32_t object)
{
	bool known = false;

	lock_take(&lock);
	for (size_t i = 0; i < MOST_GROUPS; i++) {
		struct group *g = &all.groups[i];

		if (!goes(g->client, g->object, g->device, client, object))
			continue;
		for (size_t k = 0; k < MOST_CHANNELS; k++)
			if (goes(all.channels[k].client, all.channels[k].object,
			         all.channels[k].group, client, g->object))
				all.channels[k] = (struct channel){0};
		let_go(g, object == client);
		known = true;
	}
	for (size_t k = 0; k < MOST_CHANNELS; k++)
		if (goes(all.channels[k].client, all.channels[k].object, all.channels[k].group,
		         client, object))
			all.channels[k] = (struct channel){0};
	for (size_t i = 0; i < MOST_SUBDEVICES; i++)
		if (goes(all.subdevices[i].client, all.subdevices[i].object,
		         all.subdevices[i].device, client, object))
			all.subdevices[i] = (struct subdevice){0};
	lock_give(&lock);
	if (known)
		tell();
}

void groups_scheduled(uint32_t client, uint32_t object)
{
	struct group *group;

	lock_take(&lock);
	group = group_find(&all, client, object);
	if (group)
		group->scheduled = true;
	lock_give(&lock);
	if (group)
		tell();
}

void groups_slice_made(uint32_t client, uint32_t object, uint64_t us)
{
	struct group *group;

	lock_take(&lock);
	group = group_find(&all, client, object);
	if (group)
		group->made_us = group->slice_us = us;
	lock_give(&lock);
	if (group)
		tell();
}

static void in_child(void)
{
	lock_after_fork(&lock);
	memset(&all, 0, sizeof(all));
}
FORK_WATCH(in_child);
