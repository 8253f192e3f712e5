/* old_glibc.h: every file of the interposer is compiled with it (shim/meson.build), so that the
 * library can be loaded by a glibc as old as 2.17, which is what containers may bring.
 *
 * The linker takes the newest version of a function that the glibc of the build machine has.
 * Between 2.17 and 2.34 these got a new version and kept their old one, which does the same: on
 * 64-bit machines fcntl64 is fcntl, and the functions of libpthread and libdl only moved into libc.
 * shim/meson.build links with these two libraries by name, where an older glibc has them.
 * tests/packages/test_symbol_versions.py compares what the built library needs.
 */
#ifndef GPU_LEASE_OLD_GLIBC_H
#define GPU_LEASE_OLD_GLIBC_H

#if defined(__x86_64__)
#define OLDEST_GLIBC "GLIBC_2.2.5"
#define OLDEST_SSCANF "GLIBC_2.7"
#define OLD_STAT_VERSION 1 /* _STAT_VER, which newer headers lack */
#elif defined(__aarch64__)
#define OLDEST_GLIBC "GLIBC_2.17"
#define OLDEST_SSCANF "GLIBC_2.17"
#define OLD_STAT_VERSION 0
#endif

#ifdef OLDEST_GLIBC
#include <sys/stat.h>

#define OLDEST(name) __asm__(".symver " #name ", " #name "@" OLDEST_GLIBC);
#define OLDEST_AS(name, old, version) __asm__(".symver " #name ", " #old "@" version);

/* 2.34 */
OLDEST(pthread_attr_setstacksize)
OLDEST(pthread_create)
OLDEST(pthread_key_create)
OLDEST(pthread_once)
OLDEST(pthread_setspecific)
/* 2.33: until then headers made a call of this function of fstat */
OLDEST_AS(old_fstat, __fxstat64, OLDEST_GLIBC)
extern int old_fstat(int version, int descriptor, struct stat *found);
#define fstat(descriptor, found) old_fstat(OLD_STAT_VERSION, descriptor, found)
/* 2.32 */
OLDEST(pthread_sigmask)
/* 2.28 */
OLDEST_AS(fcntl64, fcntl, OLDEST_GLIBC)
/* 2.38: binary numbers of C23, which we read none of */
OLDEST_AS(__isoc23_strtoull, strtoull, OLDEST_GLIBC)
OLDEST_AS(__isoc23_sscanf, __isoc99_sscanf, OLDEST_SSCANF)
OLDEST_AS(__isoc23_fscanf, __isoc99_fscanf, OLDEST_SSCANF)
#endif

#endif
