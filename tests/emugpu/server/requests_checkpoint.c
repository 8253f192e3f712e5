/* requests_checkpoint.c: a process is locked, checkpointed, restored and unlocked by another one.
 * The lock is held; where it is given up the process may end, so it is looked up again. */
#include "server/server.h"

#include <string.h>

#define UUID 16
/* Of what a copy of pinned memory reaches: measured on an H200. */
#define SAVE_PART 0.043
#define LOAD_PART 0.126
#define SAVE_US 40000 /* what each takes on a card, however little there is */
#define LOAD_US 60000
#define POLL_NS 500000

static struct process *process_of(uint64_t pid)
{
	for (struct process *p = emulator.processes; p; p = p->next)
		if (p->pid == pid && !p->dead)
			return p;
	return NULL;
}

const struct model *process_model(const struct process *process)
{
	return emulator.devices[process->n_visible ? process->visible[0] : 0].model;
}

/* What a checkpoint, or a restore, takes. */
static uint64_t step_ns(const struct process *process, uint64_t us, uint64_t bytes, double part)
{
	const struct model *model = process_model(process);
	double s = (double)bytes / ((double)model->link * part);

	if (model->registered)
		s += (double)process->registered / 2 / (double)model->registered;
	return card_ns(model, us) + (uint64_t)(s * 1e9);
}

/* A fault that a test has asked for. */
static bool fails(const struct process *process, enum emu_checkpoint what)
{
	struct device *device = &emulator.devices[process->n_visible ? process->visible[0] : 0];
	uint32_t *left = &device->checkpoint_fails[what];

	return *left && !--*left;
}

static void become(struct process *process, enum emu_process_state state)
{
	process->state = state;
	process->locking = false;
	pthread_cond_broadcast(&process->changed);
	changed();
}

static bool idle(const struct process *process)
{
	for (const struct context *c = process->contexts; c; c = c->next) {
		for (const struct stream *s = c->streams; s; s = s->next)
			if (s->length)
				return false;
		if (c->running)
			return false;
	}
	return true;
}

/* New calls wait from now on, and work that was submitted finishes. */
static enum emu_status lock(struct process *process, uint64_t timeout_ms)
{
	uint64_t until = now_ns() + timeout_ms * 1000000, pid = process->pid;

	if (process->state != EMU_RUNNING || process->locking)
		return EMU_ILLEGAL_STATE;
	if (process->mps)
		return EMU_NOT_SUPPORTED;
	process->locking = true;
	while (process && !idle(process) && (!timeout_ms || now_ns() < until)) {
		take_time(POLL_NS);
		process = process_of(pid);
	}
	if (!process)
		return EMU_INVALID;
	become(process, idle(process) ? EMU_LOCKED : EMU_RUNNING);
	return process->state == EMU_LOCKED ? EMU_OK : EMU_NOT_READY;
}

static enum emu_status save(struct process *process, bool lets_go)
{
	uint64_t pid = process->pid, bytes;

	if (process->state != EMU_LOCKED)
		return EMU_ILLEGAL_STATE;
	if (!checkpoint_possible(process))
		return EMU_NOT_SUPPORTED;
	bytes = checkpoint_save(process);
	process->account->registered = process->registered;
	process->state = EMU_CHECKPOINTED;
	take_time(step_ns(process, SAVE_US, bytes, SAVE_PART));
	if (lets_go && process_of(pid))
		process_lets_go(process_of(pid));
	return process_of(pid) ? EMU_OK : EMU_INVALID;
}

static uint32_t device_of(const uint8_t uuid[UUID])
{
	for (uint32_t i = 0; i < emulator.n_devices; i++)
		if (!memcmp(emulator.devices[i].info.uuid_bytes, uuid, UUID))
			return i;
	return EMU_MAX_DEVICES;
}

/* Reads a map. It has to name every device of the machine once on either side. */
static bool read_map(const uint8_t *pairs, uint64_t size, uint32_t to[EMU_MAX_DEVICES])
{
	bool is_old[EMU_MAX_DEVICES] = {0}, is_new[EMU_MAX_DEVICES] = {0};

	for (uint32_t i = 0; i < emulator.n_devices; i++)
		to[i] = i;
	if (!size)
		return true;
	if (size != (uint64_t)emulator.n_devices * 2 * UUID)
		return false;
	for (uint32_t i = 0; i < emulator.n_devices; i++) {
		uint32_t from = device_of(pairs + 2 * UUID * i);
		uint32_t onto = device_of(pairs + 2 * UUID * i + UUID);

		if (from == EMU_MAX_DEVICES || onto == EMU_MAX_DEVICES || is_old[from] ||
		    is_new[onto])
			return false;
		is_old[from] = is_new[onto] = true;
		to[from] = onto;
	}
	return true;
}

static enum emu_status restore(struct process *process, const uint8_t *pairs, uint64_t size)
{
	uint32_t to[EMU_MAX_DEVICES] = {0};
	uint64_t pid = process->pid, bytes;

	if (process->state != EMU_CHECKPOINTED)
		return EMU_ILLEGAL_STATE;
	if (process->stuck)
		return EMU_OS;
	if (!read_map(pairs, size, to))
		return EMU_INVALID;
	process->stuck = !checkpoint_fits(process, to);
	if (process->stuck)
		return EMU_OOM;
	bytes = checkpoint_load(process, to);
	process->state = EMU_LOCKED;
	take_time(step_ns(process, LOAD_US, bytes, LOAD_PART));
	return process_of(pid) ? EMU_OK : EMU_INVALID;
}

static enum emu_status unlock(struct process *process)
{
	if (process->state != EMU_LOCKED)
		return EMU_ILLEGAL_STATE;
	become(process, EMU_RUNNING);
	process_may_return(process);
	return EMU_OK;
}

static enum emu_status act(const struct connection *c, const struct emu_request *q,
                           const uint8_t *payload)
{
	struct process *process = process_of(q->arg[1]);

	if (!process || q->arg[0] >= EMU_CPS)
		return EMU_INVALID;
	if (c->process->uid && c->process->uid != process->uid)
		return EMU_INVALID;
	if (q->arg[0] != EMU_CP_STATE && fails(process, (enum emu_checkpoint)q->arg[0]))
		return EMU_OS;
	switch ((enum emu_checkpoint)q->arg[0]) {
	case EMU_CP_LOCK:
		return lock(process, q->arg[2]);
	case EMU_CP_SAVE:
		return save(process, q->arg[2]);
	case EMU_CP_RESTORE:
		return restore(process, payload, q->payload);
	case EMU_CP_UNLOCK:
		return unlock(process);
	case EMU_CP_STATE:
	case EMU_CPS:
		break;
	}
	return EMU_OK;
}

bool serve_checkpoint(struct connection *c, const struct emu_request *q, const uint8_t *payload)
{
	enum emu_status status = act(c, q, payload);
	const struct process *process = process_of(q->arg[1]);

	return reply(c, status, (uint64_t[5]){process ? process->state : EMU_RUNNING});
}
