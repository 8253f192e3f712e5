#include "nvml/samples.h"

#define MOST 256 /* processes of a device that are remembered */

static struct {
	struct emu_process_info seen[MOST];
	unsigned n;
	uint64_t at;
	uint64_t looks;
} before[EMU_MAX_DEVICES];

static uint64_t busy_before(int device, unsigned pid)
{
	for (unsigned i = 0; i < before[device].n; i++)
		if (before[device].seen[i].pid == pid)
			return before[device].seen[i].busy_ns;
	return 0;
}

/* Where several processes have worked, a card's samples do not say how much each did: a sample
 * gives each of those that it has seen as much as the others, or one of them next to all. Which of
 * both, and who that is, changes from look to look. */
static void mislead(struct nvml_sample *list, unsigned n, uint64_t look)
{
	unsigned all = 0, one = (unsigned)(look / 2 % n);

	for (unsigned i = 0; i < n; i++)
		all += list[i].sm;
	all = all > 100 ? 100 : all;
	for (unsigned i = 0; i < n; i++)
		list[i].sm = look % 2 ? all / n : i == one ? all - 1 : 0;
}

nvml_return samples_take(int device, const struct emu_process_info *list, unsigned n, uint64_t now,
                         struct nvml_sample *out, unsigned *count)
{
	uint64_t span = now - before[device].at;
	unsigned found = 0;

	for (unsigned i = 0; i < n; i++) {
		uint64_t busy = list[i].busy_ns - busy_before(device, list[i].pid);
		uint64_t percent = span ? busy * 100 / span : 0;

		if (percent)
			out[found++] =
			    (struct nvml_sample){.pid = list[i].pid,
			                         .timestamp = now / 1000,
			                         .sm = (unsigned)(percent > 100 ? 100 : percent)};
	}
	if (found > 1)
		mislead(out, found, before[device].looks++);
	before[device].at = now;
	before[device].n = n < MOST ? n : MOST;
	for (unsigned i = 0; i < before[device].n; i++)
		before[device].seen[i] = list[i];
	*count = found;
	return found ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
