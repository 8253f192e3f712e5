/* debug.h: messages on stderr; nothing else in this library writes there.
 *
 * Both functions write one line that begins with "gpu-lease[PID]: ", and cut it at 511 bytes. Any
 * thread may call them, with or without locks. They preserve errno and never block.
 */
#ifndef GPU_LEASE_DEBUG_H
#define GPU_LEASE_DEBUG_H

/* Writes a line if the environment variable GPU_LEASE_DEBUG was set when the program started. */
void debug(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Tells the user of a fault. docs/troubleshooting.md explains each of these messages. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
