/* channels.c: the emulated libcuda: what it has the kernel make for its devices and contexts. A
 * context has four channel groups: one for compute, three for copies; that of a client of MPS has
 * none that this process could see. */
#include "abi/client.h"
#include "rm.h"

#include <string.h>

#define COPY_CHANNELS 4
#define SLICE_US 2048 /* of compute groups; the kernel's own is 1024 */

static const uint32_t engines[4] = {RM_ENGINE_COMPUTE, RM_ENGINE_IN, RM_ENGINE_OUT,
                                    RM_ENGINE_SPARE};
static uint32_t client, first_device, devices[EMU_MAX_DEVICES];
static struct emu_ctx *with_groups[64];
static uint32_t last_handle = UINT32_C(0x5c000000);

static uint32_t new_handles(uint32_t n)
{
	return __atomic_fetch_add(&last_handle, n, __ATOMIC_RELAXED) + 1;
}

static uint32_t make(uint32_t parent, uint32_t object, uint32_t class, void *parms, uint32_t size)
{
	struct rm_alloc a = {.root = client,
	                     .parent = parent,
	                     .object = object,
	                     .class = class,
	                     .parms = (uint64_t)(uintptr_t)parms,
	                     .parms_size = size};

	if (ioctl(emu_kernel_fd, _IOWR('F', RM_ALLOC, struct rm_alloc), &a) || a.status)
		return 0;
	return a.object;
}

static void drop(uint32_t parent, uint32_t object)
{
	struct rm_free f = {client, parent, object, 0};

	(void)ioctl(emu_kernel_fd, _IOWR('F', RM_FREE, struct rm_free), &f);
}

/* That a kernel does not know a control keeps no program from its work. */
static void control(uint32_t object, uint32_t cmd, void *params, uint32_t size)
{
	struct rm_control c = {.client = client,
	                       .object = object,
	                       .cmd = cmd,
	                       .params = (uint64_t)(uintptr_t)params,
	                       .size = size};

	(void)ioctl(emu_kernel_fd, _IOWR('F', RM_CONTROL, struct rm_control), &c);
}

static void make_devices(uint32_t first)
{
	uint32_t none = 0;

	client = make(0, 0, RM_CLIENT, NULL, 0);
	for (uint32_t i = 0; i < (uint32_t)emu_devices; i++) {
		struct rm_device wish = {i};

		devices[i] = make(client, first + 2 * i, RM_DEVICE, &wish, sizeof(wish));
		make(devices[i], first + 2 * i + 1, RM_SUBDEVICE, &none, sizeof(none));
	}
}

void emu_devices_open(void)
{
	first_device = new_handles(2 * EMU_MAX_DEVICES);
	emu_kernel_open();
	make_devices(first_device);
}

static uint32_t channels_of(const struct emu_ctx *ctx, int group)
{
	return group ? COPY_CHANNELS : ctx->n_channels;
}

static void make_groups(struct emu_ctx *ctx, uint32_t first)
{
	uint32_t channel = ctx->first_channel;
	uint8_t schedule[3] = {1, 0, 0};

	for (int i = 0; i < 4; i++) {
		struct rm_group wish = {.space = (uint32_t)ctx->id, .engine = engines[i]};

		ctx->groups[i] =
		    make(devices[ctx->device], first + (uint32_t)i, RM_GROUP, &wish, sizeof(wish));
		for (uint32_t k = 0; k < channels_of(ctx, i); k++)
			make(ctx->groups[i], channel++, RM_CHANNEL, NULL, 0);
		control(ctx->groups[i], RM_GROUP_SCHEDULE, schedule, sizeof(schedule));
	}
}

static struct emu_ctx **place_of(const struct emu_ctx *ctx)
{
	for (size_t i = 0; i < sizeof(with_groups) / sizeof(with_groups[0]); i++)
		if (with_groups[i] == ctx)
			return &with_groups[i];
	return NULL;
}

void emu_groups_open(struct emu_ctx *ctx)
{
	uint32_t first = new_handles(4);
	uint64_t slice = SLICE_US;
	struct emu_ctx **place = place_of(NULL);

	if (emu_mps_server)
		return;
	ctx->n_channels = emu_info[ctx->device].compute_channels;
	ctx->first_channel = new_handles(ctx->n_channels + 3 * COPY_CHANNELS);
	make_groups(ctx, first);
	control(ctx->groups[0], RM_GROUP_SET_SLICE, &slice, sizeof(slice));
	if (place)
		*place = ctx;
}

/* For tests: what a driver's library does when its process is restored from a checkpoint. All
 * objects go with their client, and come again with the same numbers below another one; no slice is
 * set. */
EXPORT void emugpu_restored(void)
{
	drop(0, client);
	make_devices(first_device);
	for (size_t i = 0; i < sizeof(with_groups) / sizeof(with_groups[0]); i++)
		if (with_groups[i])
			make_groups(with_groups[i], with_groups[i]->groups[0]);
}

void emu_groups_close(struct emu_ctx *ctx)
{
	uint32_t channel = ctx->first_channel;
	struct emu_ctx **place = place_of(ctx);

	if (emu_mps_server)
		return;
	if (place)
		*place = NULL;
	for (int i = 0; i < 4; i++) {
		for (uint32_t k = 0; k < channels_of(ctx, i); k++)
			drop(ctx->groups[i], channel++);
		drop(devices[ctx->device], ctx->groups[i]);
		ctx->groups[i] = 0;
	}
}
