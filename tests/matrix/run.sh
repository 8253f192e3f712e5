#!/usr/bin/env bash
# Set up, build and test this checkout on bare Debian trees, which have one Slurm release each:
#     tests/matrix/run.sh [TREE...]        all of TREES where none is named
# A tree is made by debootstrap below build/trees and kept for the next time (about 2 GB each;
# remove its directory to have a new one). What is committed is tested, in a copy at /src of the
# tree, by the README's own commands: first the demo, then the tests of whole jobs. ARGS: what pytest
# gets, without the demo.
# Needs root, debootstrap, systemd-nspawn and a Debian mirror (MIRROR).
set -euo pipefail
cd "$(dirname "$0")/../.."

WHOLE_JOBS=(
	tests/slurm/test_accounting.py tests/slurm/test_check.py tests/slurm/test_ctl.py
	tests/slurm/test_dynamic_nodes.py tests/slurm/test_gpu_order.py tests/slurm/test_mem_update.py
	tests/slurm/test_parked.py tests/slurm/test_placer.py tests/slurm/test_placer_reserve.py
	tests/slurm/test_placer_rules.py tests/slurm/test_placer_whole.py
	tests/slurm/test_plugstack.py tests/slurm/test_preempt.py
	tests/slurm/test_shard_memory.py tests/slurm/test_share.py
	tests/slurm/test_suspend_ends.py tests/slurm/test_suspend_gpu.py tests/slurm/test_swap.py
	tests/security/test_slurm_jobs.py
)
# Tests make cgroups of version 1, which systemd-nspawn shows without the right to write.
CGROUPS="find /sys/fs/cgroup/memory /sys/fs/cgroup/freezer -maxdepth 0 -exec mount -o remount,bind,rw {} \\;"
PLACE=$PWD/build/trees
. tests/matrix/trees.sh

# What is committed, over what the tree had: its build is kept.
copy_source() {
	local source=$PLACE/$1/src
	mkdir -p "$source"
	find "$source" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
	git archive HEAD | tar -x -C "$source"
}

try() {
	local log=$PLACE/$1.log args=${ARGS:-${WHOLE_JOBS[*]}} demo="make demo"
	[ -z "${ARGS:-}" ] || demo=true
	make_tree "$1"
	copy_source "$1"
	say "$1: make demo, make test"
	if inside "$1" "$CGROUPS; cd /src && { command -v make || { apt-get update && apt-get install -y make; }; } &&
		$demo && make test ARGS='$args'" >"$log" 2>&1; then
		say "$1: $(inside "$1" "slurmctld -V"): $(grep -E ' (passed|skipped)' "$log" | tail -1)"
	else
		tail -40 "$log"
		say "$1: FAILED, see $log"
		failed=1
	fi
}

choose_trees "$@"
failed=0
for name in "${names[@]}"; do
	try "$name"
done
exit "$failed"
