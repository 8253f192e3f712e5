/* slurmdb.h: the rows of a job in Slurm's accounting database; what Python calls through cffi. */
#ifndef GPU_LEASE_SLURMDB_H
#define GPU_LEASE_SLURMDB_H

#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
/* One run of a job: one that is requeued has a row for each. Times in seconds since
 * the epoch, 0: not yet. A number that says nothing is NO_VAL (2^32 - 2). */
struct gl_job_row {
	uint32_t job_id;
	uint32_t array_job_id; /* 0: no array */
	uint32_t array_task_id;
	uint32_t het_job_id; /* 0: not heterogeneous */
	uint32_t het_job_offset;
	uint32_t state;
	int64_t submit;
	int64_t start;
	int64_t end;
};

/* Connect, as SLURM_CONF says. 0, or -1 with one sentence in error. */
int gl_slurmdb_open(char *error, size_t size);
void gl_slurmdb_close(void);
/* The rows of a job that were there between two times, `most` at most. Their number, or
 * -1: error says why. */
int gl_slurmdb_rows(uint32_t job_id, int64_t from, int64_t until, struct gl_job_row *rows, int most,
                    char *error, size_t error_size);
/* The SystemComment of an ended row. 0, or -1: error says why. */
int gl_slurmdb_get_comment(const struct gl_job_row *row, char *out, size_t size, char *error,
                           size_t error_size);
int gl_slurmdb_set_comment(const struct gl_job_row *row, const char *text, char *error,
                           size_t error_size);
/* cffi:end */

#endif
