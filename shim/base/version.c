/* version.c: names the release in the library; `gpu-leasectl check` looks for this text in the
 * file. */
#include "base/wire.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

__attribute__((used)) static const char version[] =
    "gpu-lease interposer " GPU_LEASE_VERSION " wire " TEXT(GL_VERSION);
