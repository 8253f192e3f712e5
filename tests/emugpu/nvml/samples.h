/* samples.h: whose work a device has done since it was last asked. */
#ifndef EMUGPU_NVML_SAMPLES_H
#define EMUGPU_NVML_SAMPLES_H

#include "nvml/types.h"
#include "protocol.h"

/* One sample for each of these processes of a device, of the time since the call before for that
 * device; a process that has done no work since then has none. out has room for n; *count: how many
 * there are. Where several have worked, the samples do not say how much each did, as on a card. The
 * caller holds the lock. NVML_ERROR_NOT_FOUND: nobody has worked. */
nvml_return samples_take(int device, const struct emu_process_info *list, unsigned n, uint64_t now,
                         struct nvml_sample *out, unsigned *count);

#endif
