#!/usr/bin/env bash
# Build Debian packages into build/deb, from what git tracks in this checkout.
#     packaging/deb.sh           a source tree, then the packages for this machine's distribution
#     packaging/deb.sh source    the source tree alone: build/deb/source/gpu-lease-VERSION
# What building needs is installed first where that may be done (root), else named. Debian has no
# package of cuda.h 12 in its main archive and none of NVML's binding: both are taken from
# CUDA_INCLUDE and NVML_BINDING, or from build/venv, which packaging/setup.sh makes.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/source.sh

say() { printf '== %s\n' "$*"; }
die() {
	printf 'deb: %s\n' "$*" >&2
	exit 1
}

install_needed() {
	local missing
	missing=$(dpkg-checkbuilddeps -P"$profile" "$source/debian/control" 2>&1) && return 0
	[ "$(id -u)" -eq 0 ] || die "${missing#dpkg-checkbuilddeps: error: }; run as root, or install them"
	say "installing what building needs: ${missing##*: }"
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get build-dep -y -qq --no-install-recommends -P "$profile" \
		"./$source" >build/deb/apt.log 2>&1 ||
		{ tail -20 build/deb/apt.log >&2; die "apt-get failed, see build/deb/apt.log"; }
}

build_packages() {
	local include
	include=$(cuda_include)
	say "building $(basename "$source"), see build/deb/build.log"
	rm -f build/deb/*.deb build/deb/*.buildinfo build/deb/*.changes
	# What the shell has from a venv is none of the packages' business.
	(cd "$source" && env -u PYTHONPATH PATH=/usr/sbin:/usr/bin:/sbin:/bin CUDA_INCLUDE="$include" \
		dpkg-buildpackage -b -us -uc -P"$profile") >build/deb/build.log 2>&1 ||
		{ tail -40 build/deb/build.log >&2; die "the build failed, see build/deb/build.log"; }
	mv build/deb/source/*.deb build/deb/source/*.buildinfo build/deb/source/*.changes build/deb/
	ls build/deb/*.deb
}

command -v dpkg-checkbuilddeps >/dev/null ||
	die "this needs a Debian or Ubuntu machine with dpkg-dev: apt-get install dpkg-dev"
# The header is no package here.
profile=pkg.gpu-lease.cuda-header
source=build/deb/source/gpu-lease-$(release_version)
mkdir -p build/deb
make_source "$source"
mv "$source/packaging/debian" "$source/debian"
# The same packages from every checkout: files that are installed as they are keep their time.
find "$source" -exec touch -h -d "$(dpkg-parsechangelog -l "$source/debian/changelog" -S Date)" {} +
[ "${1:-}" = source ] || { install_needed; build_packages; }
