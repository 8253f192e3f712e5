/* sharing_jobs.c: which jobs share on this node: each has an empty file CLUSTER.JOB in a directory
 * beside the daemon's socket.
 *
 * Steps and epilogs of other jobs look for that file and do nothing else, whatever state the daemon
 * is in. Only root writes to the directory. If a file cannot be made, the daemon hears of the job's
 * end from Slurm, up to a minute later.
 */
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRECTORY "sharing-jobs"

static bool directory_of(const char *admin_socket, char *out, size_t size)
{
	const char *slash = strrchr(admin_socket, '/');

	return slash && snprintf(out, size, "%.*s/" DIRECTORY, (int)(slash - admin_socket),
	                         admin_socket) < (int)size;
}

static bool file_of(const char *admin_socket, uint32_t job_id, char *out, size_t size)
{
	char directory[256];

	return directory_of(admin_socket, directory, sizeof(directory)) &&
	       snprintf(out, size, "%s/%s.%u", directory, cluster_name(), job_id) < (int)size;
}

void sharing_jobs_add(const char *admin_socket, uint32_t job_id)
{
	char directory[256], file[288];
	int fd = -1;

	if (directory_of(admin_socket, directory, sizeof(directory)) &&
	    file_of(admin_socket, job_id, file, sizeof(file)) &&
	    (!mkdir(directory, 0700) || errno == EEXIST))
		fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0)
		close(fd);
	else
		slurm_info("gpu-share: cannot make the file beside %s that says that job %u shares "
		           "a GPU: %m",
		           admin_socket, job_id);
}

bool sharing_jobs_has(const char *admin_socket, uint32_t job_id)
{
	char file[512];
	struct stat s;

	return file_of(admin_socket, job_id, file, sizeof(file)) && !lstat(file, &s);
}

bool sharing_jobs_remove(const char *admin_socket, uint32_t job_id)
{
	char file[512];

	return file_of(admin_socket, job_id, file, sizeof(file)) && !unlink(file);
}
