/* checkpoint.c: the emulated libcuda: processes are locked, checkpointed, restored and unlocked. */
#include "abi/client.h"

#include <stdlib.h>
#include <string.h>

#if CUDA_VERSION < 12080 /* an older header; the functions are here all the same */
typedef int CUprocessState;
typedef struct {
	unsigned timeoutMs;
} CUcheckpointLockArgs;
typedef void CUcheckpointCheckpointArgs, CUcheckpointRestoreArgs, CUcheckpointUnlockArgs;
#endif

/* CUcheckpointRestoreArgs since CUDA 13; before that all of it has to be 0. A pair is the UUID of a
 * GPU that was checkpointed, and that of the one in its place. */
struct restore {
	const CUuuid (*pairs)[2];
	unsigned n_pairs;
};

static CUresult call(enum emu_checkpoint what, int pid, uint64_t timeout_ms, uint64_t size,
                     const void *payload, struct emu_reply *reply)
{
	struct emu_request q = {
	    .op = EMU_CHECKPOINT, .payload = size, .arg = {what, (uint64_t)pid, timeout_ms}};

	TRY(emu_ready());
	return emu_checkpoint_call(&q, payload, reply);
}

EXPORT CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
	struct emu_reply r;

	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(call(EMU_CP_STATE, pid, 0, 0, NULL, &r));
	*state = (CUprocessState)r.r[0];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
	return call(EMU_CP_LOCK, pid, args ? args->timeoutMs : 0, 0, NULL, NULL);
}

EXPORT CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
	(void)args;
	return call(EMU_CP_SAVE, pid, getenv("EMUGPU_LETS_GO") != NULL, 0, NULL, NULL);
}

EXPORT CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
	const struct restore *wish = (const void *)args;
	unsigned n = wish ? wish->n_pairs : 0;

	if (n > EMU_MAX_DEVICES || (n && !wish->pairs))
		return CUDA_ERROR_INVALID_VALUE;
	return call(EMU_CP_RESTORE, pid, 0, n * sizeof(wish->pairs[0]), n ? wish->pairs : NULL,
	            NULL);
}

EXPORT CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
	(void)args;
	return call(EMU_CP_UNLOCK, pid, 0, 0, NULL, NULL);
}
