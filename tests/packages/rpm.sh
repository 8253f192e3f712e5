#!/usr/bin/env bash
# Build the RPM packages in bare Debian trees, and try them in others, each with a database of RPMs
# and dnf of its own:
#     tests/packages/rpm.sh [TREE...]      debian-12 where none is named
# In each: built twice, in another directory and time zone and with another umask, and compared;
# rpmlint finds nothing; refused without what they depend on; installed, used, upgraded, downgraded
# and erased (rpm_inside.sh). No mirror of Fedora or EL is needed: rpm and dnf are Debian's, and
# what the packages depend on is in packages that stand in for the distribution's. What git tracks
# is tested. KEEP=1: the trees are kept.
set -euo pipefail
cd "$(dirname "$0")/../.."
. packaging/source.sh
PLACE=$PWD/build/package-trees
. tests/matrix/trees.sh
. tests/packages/build.sh

NEXT=99.0.0
PYTHON=${PYTHON:-build/venv/bin/python}
BUILD_NEEDS=(
	rpm rpmlint git gcc libc6-dev meson pkgconf python3-cffi python3-dev python3-rich
	python3-setuptools python3-systemd libslurm-dev systemd
)

# A checkout of what git tracks, as it is now, and with the time of the last commit.
checkout() {
	rm -rf "$1"
	git clone --quiet --depth 1 --no-checkout "file://$PWD" "$1"
	git ls-files -z | tar -c --null --ignore-failed-read -T - | tar -x -C "$1"
	git -C "$1" add --all --force
}

bring_checkouts() {
	local tree=$PLACE/$1
	mkdir -p "$tree/cuda" "$tree/another"
	cp "$(cuda_include)/cuda.h" "$(nvml_binding)" "$tree/cuda/"
	checkout "$tree/first"
	checkout "$tree/another/place"
	checkout "$tree/next"
	sed -i "s/^__version__ = .*/__version__ = \"$NEXT\"/" "$tree/next/leased/__init__.py"
}

build_in() {
	inside "$1" "set -e
		export DEBIAN_FRONTEND=noninteractive CUDA_INCLUDE=/cuda NVML_BINDING=/cuda/pynvml.py
		apt-get update -qq
		apt-get install -y -qq --no-install-recommends ${BUILD_NEEDS[*]}
		git config --global --add safe.directory '*'
		(cd /first && packaging/rpm.sh)
		(cd /another/place && umask 077 && TZ=Pacific/Kiritimati packaging/rpm.sh)
		(cd /next && packaging/rpm.sh)
		cd /first/build/rpm && for rpm in *.rpm; do cmp \$rpm /another/place/build/rpm/\$rpm; done
		echo reproducible
		rpmlint --config /first/packaging/rpmlint.toml *.rpm"
}

try_in() {
	local build=$PLACE/$1 tree=$2 from
	mkdir -p "$PLACE/$tree/rpms/now" "$PLACE/$tree/rpms/next"
	for from in first:now next:next; do
		cp "$build/${from%:*}"/build/rpm/*.rpm "$PLACE/$tree/rpms/${from#*:}/"
	done
	bring_tests "$tree" rpm_inside.sh
	"$PYTHON" -m tests.docs.documents docs/admin.md "dnf install" "dnf remove" >"$PLACE/$tree/lines"
	inside "$tree" /rpm_inside.sh
}

build_and_try() {
	build_in "$1-rpm-build"
	try_in "$1-rpm-build" "$1-rpm"
}

remove_copies() { rm -rf "$PLACE/$1-rpm-build" "$PLACE/$1-rpm"; }

try() {
	local log=$PLACE/$1-rpm.log
	make_tree "$1"
	[ -n "${KEEP:-}" ] || remove_copies "$1" # a run that was broken off leaves them half made
	copy_of "$1" "$1-rpm-build"
	copy_of "$1" "$1-rpm"
	bring_checkouts "$1-rpm-build"
	say "$1: build RPMs twice, rpmlint; install, upgrade, erase: see $log"
	# No condition of an `if`: within one a command that fails would end nothing.
	set +e
	(set -e; build_and_try "$1") >"$log" 2>&1
	say_outcome "$1" "$log" $?
	set -e
	[ -n "${KEEP:-}" ] || remove_copies "$1"
}

[ "$#" -gt 0 ] || set -- debian-12
choose_trees "$@"
[ -x "$EMUGPU/emugpud" ] || die "the emulated GPU is not built: make setup"
failed=0
for name in "${names[@]}"; do
	try "$name"
done
exit "$failed"
