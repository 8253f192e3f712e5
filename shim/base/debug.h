/* debug.h: the only two ways to say anything. */
#ifndef GPU_LEASE_DEBUG_H
#define GPU_LEASE_DEBUG_H

/* For who set GPU_LEASE_DEBUG. */
void debug(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* For the user: something is really wrong. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
