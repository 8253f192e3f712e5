/* cgroup_memory.c: how much more host memory the cgroups of this process allow.
 *
 * The kernel kills a process that takes more than its cgroup allows, and the job has asked for that
 * memory for its own use. So copies leave a part of the limit free. Cached files that the kernel
 * can drop do not count as used. Without a cgroup, or if it cannot be read, any amount is allowed.
 */
#include "memory/store/cgroup_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes that are left to the program; of a small cgroup no more than this fraction. */
#define KEEP_FREE (UINT64_C(1) << 30)
#define KEEP_PART 8
#define TEXT 8192

/* The two versions of cgroups have the same numbers in files with different names. */
struct version {
	const char *controller; /* as in /proc/self/cgroup: NUMBER:CONTROLLER,...:PATH */
	const char *mount, *limit, *usage, *droppable;
};
static const struct version versions[] = {
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "\ntotal_inactive_file "},
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", "\ninactive_file "},
};

/* What would be too large for the stack of the program's thread. */
struct buffers {
	char cgroups[TEXT]; /* /proc/self/cgroup */
	char directory[PATH_MAX];
	char path[PATH_MAX];
	char text[TEXT]; /* of a file in the directory */
};

/* Reads the beginning of a file, without stdio's locks and buffers. */
static bool read_text(const char *path, char text[TEXT])
{
	ssize_t n = 0, got = 1;
	int file = open(path, O_RDONLY | O_CLOEXEC);

	if (file < 0)
		return false;
	while (n < TEXT - 1 && (got = read(file, text + n, (size_t)(TEXT - 1 - n))) > 0)
		n += got;
	close(file);
	text[n] = '\0';
	return got >= 0;
}

/* Reads a file of b->directory into b->text. */
static bool read_file(struct buffers *b, const char *name)
{
	int n = snprintf(b->path, sizeof(b->path), "%s/%s", b->directory, name);

	return n < (int)sizeof(b->path) && read_text(b->path, b->text);
}

/* A text that is no number is "max", which means that there is no limit. */
static bool read_number(struct buffers *b, const char *name, uint64_t *out)
{
	if (!read_file(b, name))
		return false;
	*out = b->text[0] >= '0' && b->text[0] <= '9' ? strtoull(b->text, NULL, 10) : UINT64_MAX;
	return true;
}

static uint64_t droppable(struct buffers *b, const struct version *v)
{
	const char *at = read_file(b, "memory.stat") ? strstr(b->text, v->droppable) : NULL;

	return at ? strtoull(at + strlen(v->droppable), NULL, 10) : 0;
}

static bool allows(struct buffers *b, const struct version *v, uint64_t size)
{
	uint64_t limit, usage, files, keep;

	if (!read_number(b, v->limit, &limit) || limit == UINT64_MAX ||
	    !read_number(b, v->usage, &usage))
		return true;
	files = droppable(b, v);
	usage -= files < usage ? files : usage;
	keep = limit / KEEP_PART < KEEP_FREE ? limit / KEEP_PART : KEEP_FREE;
	return usage <= limit && limit - usage >= keep && limit - usage - keep >= size;
}

/* Do the cgroup and all above it, up to the mount, allow so much? */
static bool all_allow(struct buffers *b, const struct version *v, uint64_t size)
{
	size_t top = strlen(v->mount);

	for (;;) {
		if (!allows(b, v, size))
			return false;
		if (strlen(b->directory) <= top)
			return true;
		*strrchr(b->directory, '/') = '\0';
	}
}

/* Is the controller in the list, which is separated by commas? "" is in an empty list only. */
static bool has_controller(const char *list, size_t length, const char *controller)
{
	size_t n = strlen(controller);

	for (const char *end = list + length;;) {
		const char *comma = memchr(list, ',', (size_t)(end - list));
		size_t part = (size_t)((comma ? comma : end) - list);

		if (part == n && !memcmp(list, controller, n))
			return true;
		if (!comma)
			return false;
		list = comma + 1;
	}
}

/* The path, and its length, in the line for that version of cgroups. Users choose the names of
 * cgroups, which may contain every character but the end of a line. */
static const char *path_in(const char *text, const struct version *v, size_t *length)
{
	for (const char *end; (end = strchr(text, '\n')); text = end + 1) {
		const char *list = memchr(text, ':', (size_t)(end - text));
		const char *path = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;

		if (path && has_controller(list + 1, (size_t)(path - list - 1), v->controller)) {
			*length = (size_t)(end - path - 1);
			return path + 1;
		}
	}
	return NULL;
}

static bool cgroups_allow(struct buffers *b, uint64_t size)
{
	bool allowed = true;

	if (!read_text("/proc/self/cgroup", b->cgroups))
		b->cgroups[0] = '\0';
	for (size_t i = 0; allowed && i < sizeof(versions) / sizeof(versions[0]); i++) {
		const struct version *v = &versions[i];
		size_t n;
		const char *path = path_in(b->cgroups, v, &n);

		if (path && snprintf(b->directory, sizeof(b->directory), "%s%.*s", v->mount, (int)n,
		                     path) < (int)sizeof(b->directory))
			allowed = all_allow(b, v, size);
	}
	return allowed;
}

bool cgroup_has_memory(uint64_t size)
{
	int saved_errno = errno;
	struct buffers *buffers = malloc(sizeof(*buffers));
	bool allowed = buffers && cgroups_allow(buffers, size);

	free(buffers);
	errno = saved_errno;
	return allowed;
}
