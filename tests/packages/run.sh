#!/usr/bin/env bash
# Build the Debian packages in bare trees, and try them in others:
#     tests/packages/run.sh [TREE...]      all of TREES (tests/matrix/trees.sh) where none is named
# In each: built twice, in another directory and time zone and with another umask, and compared;
# lintian finds nothing; installed, used, upgraded, downgraded, removed and purged (inside.sh). What
# git tracks is tested. Trees are below build/package-trees: the bare one is kept, the others
# are removed (KEEP=1: kept, and not made anew the next time).
set -euo pipefail
cd "$(dirname "$0")/../.."
. packaging/source.sh
PLACE=$PWD/build/package-trees
. tests/matrix/trees.sh

. tests/packages/build.sh
PYTHON=${PYTHON:-build/venv/bin/python}

build_in() {
	local source=$1 tree=$2
	inside "$tree" "set -e; $(install_needs "/first/$source")
		cd /first/$source && $BUILD
		cd /another/place/$source && umask 077 &&
			TZ=Pacific/Kiritimati LC_ALL=C.UTF-8 LANG=C.UTF-8 $BUILD
		cd /first && for deb in *.deb; do cmp \$deb /another/place/\$deb; done
		echo reproducible
		$LINTIAN /first/*.changes"
}

try_in() {
	local build=$1 tree=$2
	take_packages "$build" first "$PLACE/$tree/debs"
	bring_tests "$tree" inside.sh
	rm -rf "$PLACE/$tree/checkout"
	cp -a build/deb/source/gpu-lease-* "$PLACE/$tree/checkout"
	"$PYTHON" -m tests.docs.documents docs/admin.md "apt install python3-cffi" "make install" \
		"make uninstall" "rm -rf /etc/gpu-lease" >"$PLACE/$tree/lines"
	inside "$tree" /inside.sh
}

build_and_try() {
	build_in "$1" "$2-build"
	try_in "$2-build" "$2-clean"
}

remove_copies() { rm -rf "$PLACE/$1-build" "$PLACE/$1-clean"; }

try() {
	local source log=$PLACE/$1.log
	source=$(echo build/deb/source/gpu-lease-*)
	make_tree "$1"
	[ -n "${KEEP:-}" ] || remove_copies "$1" # a run that was broken off leaves them half made
	copy_of "$1" "$1-build"
	copy_of "$1" "$1-clean"
	bring_source "$source" "$1-build" first another/place
	say "$1: build twice, lintian; install, upgrade, remove: see $log"
	# No condition of an `if`: within one a command that fails would end nothing.
	set +e
	(set -e; build_and_try "$(basename "$source")" "$1") >"$log" 2>&1
	say_outcome "$1" "$log" $?
	set -e
	[ -n "${KEEP:-}" ] || remove_copies "$1"
}

choose_trees "$@"
[ -x "$EMUGPU/emugpud" ] || die "the emulated GPU is not built: make setup"
packaging/deb.sh source
failed=0
for name in "${names[@]}"; do
	try "$name"
done
exit "$failed"
