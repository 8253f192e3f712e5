/* model.c: read one GPU model from its small file. */
#include "engine/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

static int set_key(struct model *m, const char *key, const char *value)
{
	double number = strtod(value, NULL);
	const struct {
		const char *name;
		uint64_t *field;
		uint64_t unit;
	} numbers[] = {
	    {"memory_mib", &m->memory, MIB},
	    {"block_kib", &m->block, KIB},
	    {"link_mib_s", &m->link, MIB},
	    {"fault_mib_s", &m->fault, MIB},
	    {"pageable_mib_s", &m->pageable, MIB},
	    {"bandwidth_mib_s", &m->bandwidth, MIB},
	    {"context_kib", &m->context_bytes, KIB},
	    {"context_mib", &m->context_bytes, MIB},
	    {"time_slice_us", &m->slice_ns, 1000},
	    {"switch_us", &m->switch_ns, 1000},
	    {"peer_mib_s", &m->peer, MIB},
	    {"load_us", &m->load_ns, 1000},
	    {"pin_mib_s", &m->pin, MIB},
	    {"unpin_mib_s", &m->unpin, MIB},
	    {"registered_mib_s", &m->registered, MIB},
	};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (!strcmp(key, numbers[i].name)) {
			*numbers[i].field = (uint64_t)(number * (double)numbers[i].unit);
			return number > 0 ? 0 : -1;
		}
	}
	if (!strcmp(key, "name"))
		snprintf(m->name, sizeof(m->name), "%s", value);
	else if (!strcmp(key, "duplex"))
		m->duplex = number;
	else if (!strcmp(key, "contention"))
		m->contention = number;
	else if (!strcmp(key, "sm_knee"))
		m->sm_knee = number;
	else if (!strcmp(key, "throttle"))
		m->throttle = number;
	else if (!strcmp(key, "multiprocessors"))
		m->multiprocessors = (unsigned)number;
	else if (!strcmp(key, "compute_capability"))
		return sscanf(value, "%u.%u", &m->cc_major, &m->cc_minor) == 2 ? 0 : -1;
	else
		return -1;
	return 0;
}

static int check(const struct model *m, char *error, size_t size)
{
	if (strncmp(m->name, "Emulated ", 9))
		snprintf(error, size, "a model's name starts with 'Emulated ', this one is '%s'",
		         m->name);
	else if (!m->memory || !m->block || m->memory % m->block || !m->link || !m->fault ||
	         !m->pageable || !m->bandwidth || !m->context_bytes || !m->slice_ns ||
	         m->duplex <= 0 || m->duplex > 1)
		snprintf(error, size, "a key is missing, or memory is no multiple of the block");
	else if (m->contention < 0 || m->throttle < 0 || m->throttle >= 1 ||
	         ((m->contention || m->throttle) && !m->load_ns) || m->sm_knee <= 0 ||
	         m->sm_knee > 1)
		snprintf(error, size,
		         "contention, throttle or sm_knee is out of bounds, or load_us is "
		         "missing");
	else
		return 0;
	return -1;
}

int model_load(const char *path, struct model *model, char *error, size_t size)
{
	FILE *file = fopen(path, "re");
	char line[256], key[64], value[64];
	int number = 0;

	*model = (struct model){.sm_knee = 1};
	if (!file) {
		snprintf(error, size, "cannot open model %s: %s", path, strerror(errno));
		return -1;
	}
	while (fgets(line, sizeof(line), file)) {
		number++;
		if (line[0] == '#' || line[strspn(line, " \t\n")] == '\0')
			continue;
		if (sscanf(line, " %63[a-z_] = %63[^\n]", key, value) != 2 ||
		    set_key(model, key, value)) {
			snprintf(error, size, "%s:%d: not a known 'key = value'", path, number);
			fclose(file);
			return -1;
		}
	}
	fclose(file);
	return check(model, error, size);
}
