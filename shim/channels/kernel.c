/* kernel.c: the entry for ioctl in the import table of the driver's library. */
#include "channels/kernel.h"

#include "channels/groups.h"
#include "driver/lookup.h"
#include "driver/slots.h"

#include <errno.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>

typedef int ioctl_function(int fd, unsigned long request, ...);

static _Atomic(ioctl_function *) before; /* what stood in the entry */

/* -- what the library says ---------------------------------------------------------------- */

static void note_group(int fd, const struct rm_alloc *alloc)
{
	const struct rm_group *of = (const void *)(uintptr_t)alloc->parameters;
	struct group group = {.fd = fd,
	                      .client = alloc->client,
	                      .device = alloc->parent,
	                      .object = alloc->object,
	                      .engine = of ? of->engine : 0};

	groups_add_group(&group);
}

static void note_alloc(int fd, const struct rm_alloc *alloc, size_t size)
{
	uint32_t status =
	    size == RM_ALLOC_SHORT ? alloc->short_form.status : alloc->long_form.status;

	if ((size != RM_ALLOC_SHORT && size != RM_ALLOC_LONG) || status)
		return;
	if (alloc->class == RM_GROUP)
		note_group(fd, alloc);
	else if (alloc->class == RM_SUBDEVICE)
		groups_add_subdevice(&(struct subdevice){
		    .fd = fd,
		    .client = alloc->client,
		    .device = alloc->parent,
		    .object = alloc->object,
		});
	else if ((alloc->class & 0xFF) == RM_CHANNEL_BYTE)
		groups_add_channel(
		    &(struct channel){alloc->client, alloc->parent, alloc->object, false, false});
}

static void note_control(const struct rm_control *control)
{
	uint64_t us;

	if (control->command == RM_SCHEDULE)
		groups_scheduled(control->client, control->object);
	if (control->status || control->command != RM_SET_SLICE || control->size != sizeof(us) ||
	    !control->parameters)
		return;
	memcpy(&us, (const void *)(uintptr_t)control->parameters, sizeof(us));
	groups_slice_made(control->client, control->object, us);
}

static void note_free(const struct rm_free *freed)
{
	if (!freed->status)
		groups_free(freed->client, freed->object);
}

static void note(int fd, unsigned long request, const void *argument)
{
	size_t size = _IOC_SIZE(request);

	switch (_IOC_NR(request)) {
	case RM_ALLOC:
		note_alloc(fd, argument, size);
		break;
	case RM_CONTROL:
		if (size == sizeof(struct rm_control))
			note_control(argument);
		break;
	case RM_FREE:
		if (size == sizeof(struct rm_free))
			note_free(argument);
		break;
	default:
		break;
	}
}

/* Stands in the library's table. errno is the call's. */
static int watched_ioctl(int fd, unsigned long request, ...)
{
	ioctl_function *real = atomic_load(&before);
	va_list rest;
	void *argument;
	int result, saved_errno;

	va_start(rest, request);
	argument = va_arg(rest, void *);
	va_end(rest);
	result = real(fd, request, argument);
	if (result || _IOC_TYPE(request) != RM_TYPE || !argument)
		return result;
	saved_errno = errno;
	note(fd, request, argument);
	errno = saved_errno;
	return result;
}

/* -- the entry ------------------------------------------------------------------------------ */

struct entry {
	ElfW(Addr) library;  /* where it begins */
	ioctl_function *set; /* NULL: the entry is bound, and read */
};

/* An entry that the loader binds at the first call is bound by a call that no file answers, since
 * the loader would put libc's function in the place of ours then. */
static void see_slot(const struct dl_phdr_info *info, const struct slot *slot, void *data)
{
	const struct entry *entry = data;
	ioctl_function *now;

	if (strcmp(slot->name, "ioctl"))
		return;
	now = (ioctl_function *)*slot->place;
	if (entry->set) {
		slot_set(info, slot, (void *)(uintptr_t)entry->set);
		return;
	}
	now(-1, 0, NULL);
	atomic_store(&before, (ioctl_function *)*slot->place);
}

static int see_library(struct dl_phdr_info *info, size_t size, void *data)
{
	const struct entry *entry = data;

	(void)size;
	if (info->dlpi_addr != entry->library)
		return 0;
	slots_of(info, see_slot, data);
	return 1;
}

void kernel_watch(void *handle)
{
	static atomic_flag done = ATOMIC_FLAG_INIT;
	const struct link_map *map = handle;
	struct entry entry = {.library = map->l_addr};
	int saved_errno = errno;

	if (atomic_flag_test_and_set(&done))
		return;
	dl_iterate_phdr(see_library, &entry);
	entry.set = watched_ioctl;
	if (atomic_load(&before))
		dl_iterate_phdr(see_library, &entry);
	errno = saved_errno;
}

uint32_t kernel_control(int fd, const struct rm_control *call)
{
	ioctl_function *real = atomic_load(&before);
	struct rm_control made = *call;
	int saved_errno = errno;
	uint32_t status;

	if (!real)
		return RM_SYSTEM | ENOSYS;
	status = real(fd, _IOWR(RM_TYPE, RM_CONTROL, struct rm_control), &made)
	             ? RM_SYSTEM | (uint32_t)errno
	             : made.status;
	errno = saved_errno;
	return status;
}
