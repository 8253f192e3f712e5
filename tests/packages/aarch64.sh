#!/usr/bin/env bash
# Build the interposer for aarch64 (Grace Hopper) on this machine, and run under qemu-user what can be
# run there: it is loaded and finds glibc's dlsym, the messages that the daemon reads have the same
# bytes, and the gate lets nobody through under stress.
#     tests/packages/aarch64.sh
# Needs what `make setup` makes; installs the cross compiler and qemu-user where they are missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
. packaging/source.sh
. tests/support/install.sh
export PATH=$PWD/build/venv/bin:$PATH

BUILD=build/aarch64
ROOT=/usr/aarch64-linux-gnu
CC=aarch64-linux-gnu-gcc
OLDEST=2.17 # glibc's first for aarch64

die() {
	printf 'aarch64: %s\n' "$*" >&2
	exit 1
}
under_qemu() { qemu-aarch64 -L "$ROOT" "$@"; }

mkdir -p build
for tool in "$CC" qemu-aarch64 "$ROOT/include"; do
	[ -d "$tool" ] || command -v "$tool" >/dev/null ||
		install_missing gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
done
cuda=$(cuda_include)
[ -f "$BUILD/build.ninja" ] || meson setup "$BUILD" --cross-file packaging/aarch64.ini \
	-Dinterposer_only=true -Dtests=false -Ddriver_include="$cuda" >build/aarch64.log 2>&1 ||
	{ tail -20 build/aarch64.log; die "meson failed, see build/aarch64.log"; }
ninja -C "$BUILD" >build/aarch64.log 2>&1 ||
	{ tail -40 build/aarch64.log; die "the build failed, see build/aarch64.log"; }
library=$PWD/$BUILD/shim/libgpulease.so

# Symbol versions, as tests/packages/test_symbol_versions.py looks at those of this machine.
newest=$(aarch64-linux-gnu-readelf --version-info --wide "$library" |
	sed -n 's/.*Name: GLIBC_\([0-9.]*\).*/\1/p' | sort -Vu | tail -1)
[ "$newest" = "$OLDEST" ] || die "$library needs glibc $newest; shim/base/old_glibc.h says what to do"
echo "needs glibc $newest"

# It is loaded first, and asks glibc for what it does not have itself.
cat >"$BUILD/loads.c" <<-'C'
	#define _GNU_SOURCE
	#include <dlfcn.h>
	#include <stdio.h>
	int main(void)
	{
		Dl_info ours, theirs;
		void *hook = dlsym(RTLD_DEFAULT, "cuLaunchKernel"), *plain = dlsym(RTLD_DEFAULT, "puts");
		if (!hook || !plain || !dladdr(hook, &ours) || !dladdr(plain, &theirs))
			return 1;
		printf("cuLaunchKernel is of %s\nputs is of %s\n", ours.dli_fname, theirs.dli_fname);
		return 0;
	}
C
"$CC" -o "$BUILD/loads" "$BUILD/loads.c" -ldl
said=$(under_qemu -E LD_PRELOAD="$library" "$BUILD/loads")
grep -q 'cuLaunchKernel is of .*libgpulease.so' <<<"$said" || die "the interposer hooks nothing: $said"
grep -q 'puts is of .*libc.so.6' <<<"$said" || die "glibc's own functions are not found: $said"
echo "is loaded, and dlsym finds its functions and glibc's"

# The protocol: the same bytes as on x86-64 and in Python.
"$CC" -Ishim -I"$BUILD/shim" -o "$BUILD/wire_vectors" tests/wire/wire_vectors.c
under_qemu "$BUILD/wire_vectors" | python3 -c '
import json, sys
golden = json.load(open("tests/wire/data/wire_vectors.json"))
said = dict(line.split(" ") for line in sys.stdin.read().splitlines())
sys.exit(0 if said == golden else f"messages differ: {sorted(k for k in golden if said.get(k) != golden[k])}")'
echo "its messages have the bytes of tests/wire/data/wire_vectors.json"

"$CC" -O2 -D_GNU_SOURCE -D__CUDA_API_VERSION_INTERNAL -Ishim -I"$BUILD/shim" -isystem "$cuda" \
	-o "$BUILD/gate_stress" tests/shim/gate/gate_stress.c shim/gate/{barrier,gate,slots}.c -pthread
said=$(under_qemu "$BUILD/gate_stress" 4 50) || die "the gate under stress: $said"
grep -q '"slipped": 0' <<<"$said" || die "a submission slipped through the closed gate: $said"
echo "nothing slips through its gate: $said"
