/* remote.c: in slurmstepd: register the job's step, set the tasks' environment, keep a refusal.
 *
 * Registering happens early, in init_post_opt; a refusal is kept and delivered
 * in task_init, where it fails the job and leaves the node alone.
 */
#include "share.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LONGEST_PRELOAD 32768

#ifndef PRIVATE_DIR
#define PRIVATE_DIR "/usr/lib/gpu-lease"
#endif

static bool refused;
static char reason[REPLY_BYTES];

static void refuse(const char *text)
{
	refused = true;
	snprintf(reason, sizeof(reason), "%s", text);
	slurm_info("gpu-share: refused: %s", text);
}

/* The library with Python in it, beside this one or where it is installed. It
 * is loaded with its symbols global: extension modules of Python need those of
 * libpython, and Slurm loads plugins with local ones. */
static half_function *load_half(void)
{
	static const char name[] = "gpu_share_python.so";
	char path[4096];
	Dl_info self;
	struct stat s;
	void *handle, *function;
	const char *slash;

	if (dladdr((void *)load_half, &self) && (slash = strrchr(self.dli_fname, '/')) &&
	    snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - self.dli_fname), self.dli_fname,
	             name) < (int)sizeof(path) &&
	    stat(path, &s) == 0)
		handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	else
		handle = dlopen(PRIVATE_DIR "/gpu_share_python.so", RTLD_NOW | RTLD_GLOBAL);
	function = handle ? dlsym(handle, HALF_FUNCTION) : NULL;
	if (!function)
		slurm_error("gpu-share: %s", dlerror());
	return (half_function *)function;
}

static void get_env(spank_t sp, const char *name, char *out, size_t size)
{
	if (spank_getenv(sp, name, out, (int)size) != ESPANK_SUCCESS)
		out[0] = '\0';
}

/* Add our library to what the user has, once. */
static void add_preload(spank_t sp, const char *library)
{
	static char text[LONGEST_PRELOAD];
	char *copy, *part, *rest;
	bool there = false;
	size_t used;

	get_env(sp, "LD_PRELOAD", text, sizeof(text));
	copy = strdup(text);
	for (rest = copy; copy && (part = strsep(&rest, ": "));)
		there |= !strcmp(part, library);
	free(copy);
	if (there)
		return;
	used = strlen(text);
	if (snprintf(text + used, sizeof(text) - used, "%s%s", used ? ":" : "", library) >=
	    (int)(sizeof(text) - used))
		refuse("LD_PRELOAD is too long to add to; shorten it");
	else
		spank_setenv(sp, "LD_PRELOAD", text, 1);
}

/* The reply: "ok", then the library, then NAME=VALUE lines; or a sentence. */
static void take_reply(spank_t sp, char *reply)
{
	char *rest = reply, *line = strsep(&rest, "\n");

	if (strcmp(line, "ok")) {
		refuse(rest ? rest : line);
		return;
	}
	line = strsep(&rest, "\n");
	if (line)
		add_preload(sp, line);
	while (rest && (line = strsep(&rest, "\n")) && *line) {
		char *value = strchr(line, '=');

		if (!value)
			continue;
		*value++ = '\0';
		spank_setenv(sp, line, value, 1);
	}
}

static void describe_step(spank_t sp, struct registration *r, char step[32], char gpus[1024])
{
	uint32_t step_id = 0;
	bool batch;

	spank_get_item(sp, S_JOB_STEPID, &step_id);
	batch = step_id == SLURM_BATCH_SCRIPT;
	if (batch)
		strcpy(step, "batch");
	else
		snprintf(step, 32, "%u", step_id);
	/* slurmd overwrites the one in srun's steps and the other in batch steps; in the
	 * wrong kind of step each may be what the user exported. */
	get_env(sp, batch ? "SLURM_JOB_GPUS" : "SLURM_STEP_GPUS", gpus, 1024);
	r->step = step;
	r->gpus = gpus;
}

/* MiB that Slurm lets the step have on this node, as it multiplies them itself from --mem,
 * --mem-per-cpu and its defaults; 0 where memory is no resource (CR_CPU, say), which
 * nothing limits then. A step may have less than its job. */
static uint64_t memory_of(spank_t sp)
{
	uint64_t job = 0, step = 0;

	spank_get_item(sp, S_JOB_ALLOC_MEM, &job);
	spank_get_item(sp, S_STEP_ALLOC_MEM, &step);
	return step && (!job || step < job) ? step : job;
}

void remote_register(spank_t sp, const struct arguments *arguments, const char *option)
{
	static char reply[REPLY_BYTES], step[32], gpus[1024], shards[32], nodes[32];
	struct registration r = {.admin_socket = arguments->admin_socket, .options = option};
	half_function *half;
	uid_t uid = 0;
	gid_t gid = 0;

	get_env(sp, "SLURM_SHARDS_ON_NODE", shards, sizeof(shards));
	if (!*shards && !*option)
		return; /* nothing of ours: no Python, no cost */
	spank_get_item(sp, S_JOB_ID, &r.job_id);
	spank_get_item(sp, S_JOB_UID, &uid);
	spank_get_item(sp, S_JOB_GID, &gid);
	/* In a batch step the item is 0 and slurmctld has set the variable. */
	spank_get_item(sp, S_JOB_NNODES, &r.nodes);
	get_env(sp, "SLURM_JOB_NUM_NODES", nodes, sizeof(nodes));
	if (!r.nodes)
		r.nodes = (uint32_t)strtoul(nodes, NULL, 10);
	r.memory_mib = memory_of(sp);
	r.uid = uid;
	r.gid = gid;
	r.shards = (uint32_t)strtoul(shards, NULL, 10);
	describe_step(sp, &r, step, gpus);
	half = load_half();
	if (!half)
		refuse("the plugin's Python half does not load on this node; see slurmd's log");
	else if (half(&r, reply, sizeof(reply)) != HALF_MAGIC)
		refuse("the plugin's Python half fails on this node; see slurmd's log");
	else
		take_reply(sp, reply);
}

/* As the user, in the task: standard error is the job's own by now. */
int remote_task_init(void)
{
	if (!refused)
		return 0;
	dprintf(STDERR_FILENO, "gpu-share: %s\n", reason);
	return -1;
}
