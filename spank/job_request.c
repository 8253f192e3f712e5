/* job_request.c: which resources a job asks for, as sbatch, salloc or srun has read its options.
 *
 * SPANK does not tell this. The three programs keep the options in their variable `opt`, and
 * slurm_option_get() of libslurm reads an option of it by name. Slurm has this for its cli_filter
 * plugins, and it is the same from 22.05 to 26.05. If either is missing the request is not known,
 * and a wrong one is refused on the node instead.
 */
#include "share.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

typedef char *option_get_function(void *options, const char *name);

static option_get_function *option_get;
static void *options;

/* The address of a variable of the program itself. NULL: it has none, or a library has one of the
 * same name. */
static void *program_symbol(const char *name)
{
	void *symbol = dlsym(RTLD_DEFAULT, name);
	Dl_info of_symbol, of_program;

	if (!symbol || !dladdr(symbol, &of_symbol) ||
	    !dladdr((void *)getauxval(AT_ENTRY), &of_program) ||
	    of_symbol.dli_fbase != of_program.dli_fbase)
		return NULL;
	return symbol;
}

static bool is_submitting_program(void)
{
	static const char *const names[] = {"sbatch", "salloc", "srun"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(program_invocation_short_name, names[i]))
			return true;
	return false;
}

/* The option's value as Slurm prints it. NULL: it is not given, or this Slurm does not know it. The
 * text is allocated by Slurm and never freed: a few bytes in a program that ends soon. */
static const char *get(const char *name)
{
	const char *value = option_get(options, name);

	return value && strcmp(value, "unset") ? value : NULL;
}

/* An entry of a list of GRES without "gres:" or "gres/" before it. Slurm itself adds the first to
 * what a user has written with the second. */
static const char *without_prefix(const char *entry)
{
	while (!strncmp(entry, "gres:", 5) || !strncmp(entry, "gres/", 5))
		entry += 5;
	return entry;
}

/* Is the count of an entry 0, so that it asks for none? */
static bool asks_for_none(const char *entry, size_t length)
{
	size_t zeros = 0;

	while (zeros < length && entry[length - zeros - 1] == '0')
		zeros++;
	return zeros && zeros < length && strchr(":=", entry[length - zeros - 1]);
}

/* Does one entry of a list, NAME[:TYPE][:COUNT] or NAME[:TYPE][=COUNT], ask for this GRES? */
static bool entry_names(const char *entry, const char *name)
{
	size_t n = strlen(name), length;

	entry = without_prefix(entry);
	length = strcspn(entry, ",");
	if (strncmp(entry, name, n) || !strchr(",:=", entry[n])) /* its end is in every string */
		return false;
	return !asks_for_none(entry, length);
}

static bool list_names(const char *list, const char *name)
{
	while (list && *list) {
		size_t length = strcspn(list, ",");

		if (entry_names(list, name))
			return true;
		list += length + (list[length] == ',');
	}
	return false;
}

void job_request_read(struct job_request *out)
{
	static const char *const gpu_options[] = {"gpus", "gpus-per-node", "gpus-per-socket",
	                                          "gpus-per-task"};
	const char *gres, *per_task, *exclusive, *nodes;

	*out = (struct job_request){0};
	options = is_submitting_program() ? program_symbol("opt") : NULL;
	option_get = (option_get_function *)dlsym(RTLD_DEFAULT, "slurm_option_get");
	if (!options || !option_get)
		return;
	gres = get("gres");
	per_task = get("tres-per-task");
	exclusive = get("exclusive");
	nodes = get("nodes");
	out->known = true;
	out->step = get("jobid") != NULL;
	out->shard = list_names(gres, "shard") || list_names(per_task, "shard");
	out->gpu = list_names(gres, "gpu") || list_names(per_task, "gpu");
	for (size_t i = 0; i < sizeof(gpu_options) / sizeof(gpu_options[0]); i++) {
		const char *count = get(gpu_options[i]);

		out->gpu |= count && strcmp(count, "0");
	}
	out->exclusive =
	    exclusive && (!strcmp(exclusive, "exclusive") || !strcmp(exclusive, "allocation"));
	out->nodes = nodes ? strtoul(nodes, NULL, 10) : 1;
}
