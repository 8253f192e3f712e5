/* remote.c: in slurmstepd: register the job's step, set the tasks' environment, keep a refusal.
 *
 * Registering happens early, in init_post_opt; a refusal is kept and delivered
 * in task_init, where it fails the job and leaves the node alone.
 *
 * Nothing here believes the job's environment. SLURM_SHARDS_ON_NODE there only says that
 * it is worth asking: slurmd sets it for every step that has shards, removes it for
 * steps without any GPU, and leaves a user's own where the job has whole GPUs.
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

/* A file of ours: beside this library, as in the build's tree, or where it is installed. */
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

/* The library with Python in it. It is loaded with its symbols global: extension modules
 * of Python need those of libpython, and Slurm loads plugins with local ones. */
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

/* What follows "ok": NAME=VALUE lines, of which two are not for the environment. */
static void take_line(spank_t sp, const char *name, const char *value)
{
	if (!strcmp(name, "note"))
		snprintf(note, sizeof(note), "%s", value);
	else if (strcmp(name, "preload"))
		spank_setenv(sp, name, value, 1);
	else if (job_environment_add_library(sp, value))
		refuse("LD_PRELOAD is too long to add to; shorten it");
}

/* The reply: "ok" and lines, "none" for a job that does not share, or "refused" and why. */
static void take_reply(spank_t sp, const struct registration *r, char *reply)
{
	char *rest = reply, *line = strsep(&rest, "\n");

	if (!strcmp(line, "none")) {
		job_environment_remove_ours(sp);
		return;
	}
	if (strcmp(line, "ok")) {
		refuse(rest && *rest ? rest : line);
		return;
	}
	sharing_jobs_add(r->admin_socket, r->job_id);
	while (rest && (line = strsep(&rest, "\n")) && *line) {
		char *value = strchr(line, '=');

		if (!value)
			continue;
		*value++ = '\0';
		take_line(sp, line, value);
	}
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
		refuse("the plugin's Python half does not load on this node; see slurmd's log");
	else if (half(r, reply, sizeof(reply)) != HALF_MAGIC)
		refuse("the plugin's Python half fails on this node; see slurmd's log");
	else
		take_reply(sp, r, reply);
}

void remote_register(spank_t sp, const struct arguments *arguments, struct step_option option)
{
	struct registration r = {.options = option.text, .given = option.given};
	char shards[32];

	spank_get_item(sp, S_JOB_ID, &r.job_id);
	r.known = sharing_jobs_has(arguments->admin_socket, r.job_id);
	/* A value that is too long to be a number counts as there. A step without GPUs of a job
	 * that shares joins. */
	if (option.given || r.known ||
	    spank_getenv(sp, "SLURM_SHARDS_ON_NODE", shards, sizeof(shards)) != ESPANK_ENV_NOEXIST)
		ask(sp, arguments, &r);
	else
		job_environment_remove_ours(sp);
}

/* As the user, in the task: standard error is the job's own by now. It ends here: with a
 * status that says failure Slurm would print two lines more. */
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
