/* slurmdb.h: a job's AdminComment; what Python calls through cffi. */
#ifndef GPU_LEASE_SLURMDB_H
#define GPU_LEASE_SLURMDB_H

#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
/* Connect, as SLURM_CONF says. 0, or -1 with one sentence in error. */
int gl_slurmdb_open(char *error, size_t size);
void gl_slurmdb_close(void);
/* 1: out has the comment; 0: the database has no such job; -1: error says why. */
int gl_slurmdb_get_comment(uint32_t job_id, char *out, size_t size, char *error, size_t error_size);
/* 1: stored; 0: the database has no such job; -1: error says why. */
int gl_slurmdb_set_comment(uint32_t job_id, const char *text, char *error, size_t error_size);
/* cffi:end */

#endif
