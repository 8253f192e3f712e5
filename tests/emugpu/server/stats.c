/* stats.c: what the devices did, and for which processes, as JSON. */
#include "server/server.h"

#include <stdio.h>
#include <stdlib.h>

#define U(x) ((unsigned long long)(x))

/* One for each engine of each context that is there now. */
static void group_json(FILE *out, const char *comma, const struct context *context, int engine)
{
	static const char *const names[N_GROUPS] = {"compute", "in", "out", "spare"};
	const struct group *g = &context->groups[engine];
	uint32_t stopped = 0, queued = 0;

	for (uint32_t i = 0; i < g->n_channels; i++) {
		stopped += g->channels[i].stopped;
		queued += g->channels[i].length;
	}
	fprintf(out,
	        "%s{\"pid\": %u, \"device\": %u, \"context\": %llu, \"engine\": \"%s\", "
	        "\"slice_us\": %llu, \"channels\": %u, \"stopped\": %u, \"queued\": %u}",
	        comma, context->process->pid, context->device->index, U(context->id), names[engine],
	        U(g->slice_us), g->n_channels, stopped, queued);
}

char *stats_json(void)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	const char *comma = "";

	if (!out)
		return NULL;
	fprintf(out, "{\"emulated\": true, \"devices\": [");
	for (uint32_t i = 0; i < emulator.n_devices; i++) {
		const struct device *d = &emulator.devices[i];

		fprintf(
		    out,
		    "%s{\"index\": %u, \"name\": \"%s\", \"uuid\": \"%s\", \"memory\": %llu, "
		    "\"free\": %llu, \"busy_ns\": %llu, \"in_bytes\": %llu, \"out_bytes\": %llu, "
		    "\"peer_bytes\": %llu, \"lost\": %s}",
		    i ? ", " : "", i, d->info.name, d->info.uuid, U(d->model->memory),
		    U(device_free_bytes(d)), U(d->busy_ns), U(d->in_bytes), U(d->out_bytes),
		    U(d->peer_bytes), d->error ? "true" : "false");
	}
	fprintf(out, "], \"processes\": [");
	for (const struct account *a = emulator.accounts; a; a = a->next) {
		fprintf(out,
		        "%s{\"pid\": %u, \"alive\": %s, \"faulted_in\": %llu, \"copied_in\": %llu, "
		        "\"moved_out\": %llu, \"kernels\": %llu, \"busy_ns\": %llu, "
		        "\"cut_short\": %llu, \"registered\": %llu}",
		        comma, a->pid, a->alive ? "true" : "false", U(a->faulted_in),
		        U(a->copied_in), U(a->moved_out), U(a->kernels), U(a->busy_ns),
		        U(a->cut_short), U(a->registered));
		comma = ", ";
	}
	fprintf(out, "], \"groups\": [");
	comma = "";
	for (const struct process *p = emulator.processes; p; p = p->next)
		for (const struct context *c = p->contexts; c; c = c->next)
			for (int i = 0; i < N_GROUPS; i++, comma = ", ")
				group_json(out, comma, c, i);
	fprintf(out, "]}");
	fclose(out);
	return text;
}
