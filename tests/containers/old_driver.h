/* old_driver.h: the emulated GPU's driver is compiled with it for images of an older glibc. */
#include "base/old_glibc.h"

#ifdef OLDEST_GLIBC
#include <pthread.h>

/* 2.34 */
OLDEST(pthread_detach)
OLDEST(pthread_getspecific)
#endif
