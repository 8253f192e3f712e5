#!/usr/bin/env bash
# The least that shows a Slurm release: this checkout compiles with it, without a warning, and jobs
# share a GPU (one_job.py) and wait for their place (placed_job.py):
#     tests/matrix/quick.sh [TREE...]      debian-13 and debian-testing where none is named
# TESTS: tests of whole jobs that run there besides, by the distribution's own pytest.
# In trees without systemd, which are made anew each time below build/quick-trees, one after
# the other at low priority, and removed (KEEP=1: kept). What git tracks is tested. Needs what
# `make setup` makes here: cuda.h, NVML's binding and the emulated GPU.
# A tree that cannot be made, as there is no mirror or no debootstrap, is skipped: the last lines say
# so and why. Exit status: 1 where a tree was made and something failed in it.
set -euo pipefail
cd "$(dirname "$0")/../.."
. packaging/source.sh
PLACE=$PWD/build/quick-trees
. tests/matrix/trees.sh

EMUGPU=build/meson/tests/emugpu
GRACE=build/meson/tests/slurm # what tests of suspended jobs preload into slurmstepd
BRING=(
	gcc libc6-dev meson ninja-build pkgconf libslurm-dev python3-dev python3-cffi python3-setuptools
	python3-systemd slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins munge
	mariadb-server-core mariadb-client-core
)
# For TESTS. Of what the demo's job needs Debian lacks the bindings alone, which pip brings.
BRING_PYTEST=(
	python3-pytest python3-pytest-timeout python3-pytest-xdist python3-hypothesis python3-numpy
	python3-rich python3-prometheus-client python3-pip procps
)
BINDINGS="cuda-bindings>=13,<14"
# What is unpacked is thrown away soon: nothing is synced to the disk, no manual is unpacked.
DPKG="force-unsafe-io
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/man/*
path-exclude=/usr/share/locale/*"

# What nobody here is to blame for: the tree is not there.
skip() {
	skipped+=("$1: $2")
	say "$1: SKIPPED, $2"
}

prepare() {
	local tree=$PLACE/$1
	if ! (make_tree "$1"); then
		skip "$1" "its tree cannot be made (is its mirror there?), see $tree.log"
		return 1
	fi
	printf '#!/bin/sh\nexit 101\n' >"$tree/usr/sbin/policy-rc.d"
	chmod 755 "$tree/usr/sbin/policy-rc.d"
	echo "$DPKG" >"$tree/etc/dpkg/dpkg.cfg.d/gpu-lease"
	echo 'Acquire::Languages "none";' >>"$tree/etc/apt/apt.conf.d/99gpu-lease"
	local bring="${BRING[*]}" pip=true
	if [ -n "${TESTS:-}" ]; then
		bring="$bring ${BRING_PYTEST[*]}"
		pip="python3 -m pip install -q --break-system-packages '$BINDINGS'"
	fi
	if ! inside "$1" "export DEBIAN_FRONTEND=noninteractive; apt-get update -qq &&
		apt-get install -y -qq --no-install-recommends $bring && $pip" >"$tree.log" 2>&1; then
		skip "$1" "its packages cannot be installed, see $tree.log"
		return 1
	fi
}

# In the tree it is where it is here: the emulated GPU knows where its models are.
bring() {
	local src=$PLACE/$1$PWD
	mkdir -p "$src/build/meson/tests" "$PLACE/$1/cuda"
	git ls-files -z | tar -c --null --ignore-failed-read -T - | tar -x -C "$src"
	cp -a "$EMUGPU" "$GRACE" "$src/build/meson/tests/"
	cp "$(cuda_include)/cuda.h" "$PLACE/$1/cuda/"
	cp "$(nvml_binding)" "$src/"
}

# As in CI, up to two that fail run once more. The other tests of CI must not be in their way, nor
# they in theirs.
OUTCOME='^(=+ )?[0-9]+ (passed|failed|skipped).* in '
run_tests() {
	[ -z "${TESTS:-}" ] || echo "python3 -m pytest -q -p no:cacheprovider $TESTS || python3 -m tests.support.again --most 2"
}

try() {
	local log=$PLACE/$1.log begun=$SECONDS
	prepare "$1" || return 0
	say "$1: tree after $((SECONDS - begun)) s"
	bring "$1"
	if inside "$1" "set -e; cd $PWD
		meson setup build/meson -Dtests=false -Ddriver_include=/cuda -Dsystemd_version=252
		ninja -C build/meson
		# The tests that run meanwhile in CI draw their ports from other parts.
		export PYTHONPATH=$PWD:$PWD/build/meson/leased PYTEST_XDIST_WORKER=gw15
		python3 -m tests.matrix.one_job
		python3 -m tests.matrix.placed_job
		$(run_tests)" >>"$log" 2>&1; then
		say "$1: $(grep -E "^Slurm |$OUTCOME" "$log" | tail -4 | paste -sd' ') ($((SECONDS - begun)) s)"
	else
		tail -40 "$log"
		say "$1: FAILED, see $log"
		failed=1
	fi
	[ -n "${KEEP:-}" ] || rm -rf "${PLACE:?}/$1"
}

[ "$#" -gt 0 ] || set -- debian-13 debian-testing
skipped=() failed=0
renice -n 19 $$ >/dev/null
if why=$(choose_trees "$@" 2>&1); then
	choose_trees "$@"
	[ -x "$EMUGPU/emugpud" ] || die "the emulated GPU is not built: make setup"
	for name in "${names[@]}"; do
		try "$name"
	done
else
	skip "$*" "$why"
fi
for line in "${skipped[@]}"; do
	say "skipped: $line"
done
exit "$failed"
