/* tenant.c: what the daemon has told about this process's job, as plain data. */
#include "tenant/tenant.h"

#include "base/fork.h"
#include "base/locks.h"
#include "base/wire.h"
#include "gate/waiting.h"

#include <stdatomic.h>
#include <string.h>

static struct lock lock = LOCK(LOCK_TENANT);
static struct gl_welcome terms; /* under the lock */
static struct gl_memory others; /* under the lock */
static atomic_bool known;       /* `terms` is the daemon's WELCOME to this process */

static bool terms_known(void)
{
	return atomic_load(&known);
}

CUresult tenant_wait(void)
{
	return terms_known() ? CUDA_SUCCESS : wait_until(WAIT_TERMS, terms_known);
}

bool tenant_wait_ms(int ms)
{
	return terms_known() || wait_for_ms(ms, terms_known);
}

static const struct gl_device *find(const struct gl_device *devices, uint32_t n,
                                    const uint8_t uuid[16])
{
	for (uint32_t i = 0; i < n && i < GL_MAX_DEVICES; i++)
		if (!memcmp(devices[i].uuid, uuid, GL_UUID_BYTES))
			return &devices[i];
	return NULL;
}

uint64_t tenant_limit(const uint8_t uuid[16])
{
	const struct gl_device *device;
	uint64_t limit;

	lock_take(&lock);
	device = find(terms.devices, terms.n_devices, uuid);
	limit = device ? device->bytes : NO_LIMIT;
	lock_give(&lock);
	return limit;
}

uint64_t tenant_others(const uint8_t uuid[16])
{
	const struct gl_device *device;
	uint64_t used;

	lock_take(&lock);
	device = find(others.devices, others.n_devices, uuid);
	used = device ? device->bytes + device->fixed : 0;
	lock_give(&lock);
	return used;
}

static bool has_flag(uint32_t flag)
{
	bool set;

	lock_take(&lock);
	set = terms.flags & flag;
	lock_give(&lock);
	return set;
}

bool tenant_oversubscribes(void)
{
	return has_flag(GL_WELCOME_OVERSUB);
}

bool tenant_swaps(void)
{
	return has_flag(GL_WELCOME_SWAP);
}

bool tenant_cleans(void)
{
	return has_flag(GL_WELCOME_CLEAN);
}

void tenant_welcome(const struct gl_welcome *message)
{
	lock_take(&lock);
	terms = *message;
	lock_give(&lock);
	atomic_store(&known, true);
	waiting_wake_all();
}

void tenant_has_others(const struct gl_memory *message)
{
	lock_take(&lock);
	others = *message;
	lock_give(&lock);
}

/* `terms` stays the parent's until the daemon welcomes the child. */
static void in_child(void)
{
	lock_after_fork(&lock);
	memset(&others, 0, sizeof(others));
	atomic_store(&known, false);
}
FORK_WATCH(in_child);
