/* load.c: what jobs beside each other take from each other though they do not run at once. Where a
 * model says so, kernels take longer the more others have worked lately: their data has left the
 * caches; and the more the device has worked: its clock falls. */
#include "engine/engine.h"

#include <math.h>

/* Lately: what was load_ns ago counts half. */
static double fade(const struct model *model, uint64_t ns)
{
	return exp2(-(double)ns / (double)model->load_ns);
}

static double load_at(const struct device *device, const struct load *load, uint64_t now)
{
	return load->part * fade(device->model, now > load->at ? now - load->at : 0);
}

static void work(const struct device *device, struct load *load, uint64_t from, uint64_t to)
{
	double kept = fade(device->model, to - from);

	load->part = load_at(device, load, from) * kept + (1 - kept);
	load->at = to;
}

void load_add(struct context *context, uint64_t from, uint64_t to)
{
	struct device *device = context->device;

	if (!device->model->load_ns || to <= from)
		return;
	work(device, &device->load, from, to);
	work(device, &context->load, from, to);
}

double clock_part(const struct device *device, uint64_t now)
{
	const struct model *m = device->model;

	return m->load_ns ? 1 - m->throttle * load_at(device, &device->load, now) : 1;
}

uint64_t load_slows(const struct context *context, uint64_t ns, uint64_t now)
{
	const struct device *device = context->device;
	double others;

	if (!device->model->load_ns)
		return ns;
	others = load_at(device, &device->load, now) - load_at(device, &context->load, now);
	others = others > 0 ? others : 0;
	return (uint64_t)((double)ns * (1 + device->model->contention * others) /
	                  clock_part(device, now));
}
