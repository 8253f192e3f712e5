/* remote.c: in slurmstepd, registers the job's step and sets the environment of its tasks.
 *
 * A step is registered early, in init_post_opt. If it is refused, its tasks fail in task_init,
 * where a failure ends the step and does not drain the node.
 *
 * The job's environment is not trusted. SLURM_SHARDS_ON_NODE in it only says that the daemon has to
 * be asked: slurmd sets the variable for every step that has shards and removes it for steps
 * without a GPU, but leaves a user's own where the job has whole GPUs.
 */
#include "share.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef PRIVATE_DIR
#define PRIVATE_DIR "/usr/lib/gpu-lease"
#endif

static bool refused;
static char reason[REPLY_BYTES], note[REPLY_BYTES];

static void refuse(const char *text)
{
	refused = true;
	snprintf(reason, sizeof(reason), "%s", text);
	slurm_info("gpu-share: refused: %s", text);
}

/* The path of a file of ours: beside this library, as in the build tree, or in PRIVATE_DIR. */
static void path_of(const char *name, char *path, size_t size)
{
	const char *slash;
	Dl_info self;
	struct stat s;

	if (dladdr((void *)path_of, &self) && (slash = strrchr(self.dli_fname, '/')) &&
	    snprintf(path, size, "%.*s/%s", (int)(slash - self.dli_fname), self.dli_fname, name) <
	        (int)size &&
	    stat(path, &s) == 0)
		return;
	snprintf(path, size, PRIVATE_DIR "/%s", name);
}

/* Loads the library that contains Python. Its symbols are global because Python's extension modules
 * need those of libpython; Slurm itself loads plugins with local symbols. */
static half_function *load_half(void)
{
	char path[4096];
	void *handle, *function;

	path_of("gpu_share_python.so", path, sizeof(path));
	handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	function = handle ? dlsym(handle, HALF_FUNCTION) : NULL;
	if (!function)
		slurm_error("gpu-share: %s", dlerror());
	return (half_function *)function;
}

/* A line NAME=VALUE that follows "ok". It sets a variable, unless the name is note or preload. */
static void take_line(spank_t sp, const char *name, const char *value)
{
	if (!strcmp(name, "note"))
		snprintf(note, sizeof(note), "%s", value);
	else if (strcmp(name, "preload"))
		spank_setenv(sp, name, value, 1);
	else if (job_environment_add_library(sp, value))
		refuse("LD_PRELOAD is too long for one more library beside those that it names; "
		       "shorten it");
}

/* The containers' variables first: the socket's name says which of them are ours. */
static void remove_ours(spank_t sp)
{
	container_environment_remove(sp);
	job_environment_remove_ours(sp);
}

/* The first line of the reply is "ok", with lines behind it; "none" if the job does not share; or
 * "refused", with the reason behind it. */
static void take_reply(spank_t sp, const struct registration *r, bool containers, char *reply)
{
	char *rest = reply, *line = strsep(&rest, "\n"), *library = NULL;

	if (!strcmp(line, "none")) {
		remove_ours(sp);
		return;
	}
	if (strcmp(line, "ok")) {
		refuse(rest && *rest ? rest : line);
		return;
	}
	sharing_jobs_add(r->admin_socket, r->job_id);
	/* Of the job or step in which this one was begun. */
	container_environment_remove(sp);
	job_environment_remove_mps(sp);
	while (rest && (line = strsep(&rest, "\n")) && *line) {
		char *value = strchr(line, '=');

		if (!value)
			continue;
		*value++ = '\0';
		take_line(sp, line, value);
		if (!strcmp(line, "preload"))
			library = value;
	}
	if (library && containers)
		container_environment_add(sp, library);
}

/* MiB of host memory that the step may have on this node, as Slurm computes it from --mem,
 * --mem-per-cpu and its defaults. A step may have less than its job. 0: nothing limits it, because
 * memory is no consumable resource (CR_CPU, for example). */
static uint64_t memory_of(spank_t sp)
{
	uint64_t job = 0, step = 0;

	spank_get_item(sp, S_JOB_ALLOC_MEM, &job);
	spank_get_item(sp, S_STEP_ALLOC_MEM, &step);
	return step && (!job || step < job) ? step : job;
}

static void ask(spank_t sp, const struct arguments *arguments, struct registration *r)
{
	static char reply[REPLY_BYTES], program[4096];
	half_function *half = load_half();
	uid_t uid = 0;

	spank_get_item(sp, S_JOB_UID, &uid);
	path_of("gpu-lease-allocation", program, sizeof(program));
	r->admin_socket = arguments->admin_socket;
	r->allocation_program = program;
	r->memory_mib = memory_of(sp);
	r->uid = uid;
	r->cluster = cluster_name();
	if (!half)
		refuse("gpu-share's plugin does not load its Python here; tell an administrator: "
		       "slurmd's log on this node says why");
	else if (half(r, reply, sizeof(reply)) != HALF_MAGIC)
		refuse("gpu-share's plugin fails in its Python here; tell an administrator: "
		       "slurmd's log on this node says why");
	else
		take_reply(sp, r, arguments->containers, reply);
}

void remote_register(spank_t sp, const struct arguments *arguments, struct step_option option)
{
	struct registration r = {.options = option.text, .given = option.given};
	char shards[32];

	spank_get_item(sp, S_JOB_ID, &r.job_id);
	r.known = sharing_jobs_has(arguments->admin_socket, r.job_id);
	/* A value that is too long for a number counts as set. A step without GPUs registers if
	 * its job shares. */
	if (option.given || r.known ||
	    spank_getenv(sp, "SLURM_SHARDS_ON_NODE", shards, sizeof(shards)) != ESPANK_ENV_NOEXIST)
		ask(sp, arguments, &r);
	else
		remove_ours(sp);
}

/* Called in the task, as the user, with the job's standard error. A refused task ends here: if this
 * returned a failure instead Slurm would print two more lines. */
void remote_task_init(spank_t sp)
{
	int task = 0;

	if (refused) {
		dprintf(STDERR_FILENO, "gpu-share: %s\n", reason);
		_exit(1);
	}
	if (*note && spank_get_item(sp, S_TASK_ID, &task) == ESPANK_SUCCESS && !task)
		dprintf(STDERR_FILENO, "gpu-share: %s\n", note);
}
