#!/usr/bin/env bash
# Set up, build and test this checkout on bare Debian trees, which have one Slurm release each:
#     tests/matrix/run.sh [TREE...]        all of TREES where none is named
# A tree is made by debootstrap below build/trees and kept for the next time (about 2 GB each;
# remove its directory to have a new one). What is committed is tested, in a copy at /src of the
# tree, by the README's own commands. ARGS: what pytest gets; else the tests of whole jobs.
# Needs root, debootstrap, systemd-nspawn and a Debian mirror (MIRROR).
set -euo pipefail
cd "$(dirname "$0")/../.."

# Name: suite, script of debootstrap (an older debootstrap does not know newer suites).
declare -A TREES=(
	[debian-12]="bookworm bookworm" # Slurm 22.05
	[debian-13]="trixie trixie"     # Slurm 24.11
	[debian-testing]="testing sid"  # Slurm 26.05
)
WHOLE_JOBS=(
	tests/slurm/test_accounting.py tests/slurm/test_ctl.py tests/slurm/test_gpu_order.py
	tests/slurm/test_parked.py tests/slurm/test_plugstack.py tests/slurm/test_preempt.py
	tests/slurm/test_share.py tests/slurm/test_suspend_gpu.py tests/slurm/test_swap.py
	tests/security/test_slurm_jobs.py
)
MIRROR=${MIRROR:-http://deb.debian.org/debian}
PLACE=$PWD/build/trees
CERTIFICATES=/etc/ssl/certs/ca-certificates.crt

say() { printf '== %s\n' "$*"; }
die() {
	printf 'matrix: %s\n' "$*" >&2
	exit 2
}

# A directory with its name is a whole tree: it gets the name when it is one.
make_tree() {
	local tree=$PLACE/$1 suite script
	[ ! -d "$tree" ] || return 0
	read -r suite script <<<"${TREES[$1]}"
	say "$1: debootstrap"
	rm -rf "$tree.new"
	debootstrap --variant=minbase "$suite" "$tree.new" "$MIRROR" \
		"/usr/share/debootstrap/scripts/$script" >"$tree.log" 2>&1 ||
		die "debootstrap failed, see $tree.log"
	# The lists of a mirror that is some days behind are good enough.
	echo 'Acquire::Check-Valid-Until "false";' >"$tree.new/etc/apt/apt.conf.d/99gpu-lease"
	mv "$tree.new" "$tree"
}

# Run a command in the tree, with the machine's network and its certificates.
inside() {
	local tree=$PLACE/$1 pass=()
	if [ -e "$CERTIFICATES" ]; then
		cp "$CERTIFICATES" "$tree/etc/machine-certificates.crt"
		pass=(-E PIP_CERT=/etc/machine-certificates.crt -E SSL_CERT_FILE=/etc/machine-certificates.crt)
	fi
	systemd-nspawn --quiet --directory="$tree" --register=no --keep-unit --pipe \
		--resolv-conf=copy-host --timezone=off "${pass[@]}" /bin/bash -c "$2" </dev/null
}

# What is committed, over what the tree had: its build is kept.
copy_source() {
	local source=$PLACE/$1/src
	mkdir -p "$source"
	find "$source" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
	git archive HEAD | tar -x -C "$source"
}

try() {
	local log=$PLACE/$1.log args=${ARGS:-${WHOLE_JOBS[*]}}
	make_tree "$1"
	copy_source "$1"
	say "$1: make setup, make test"
	if inside "$1" "cd /src && { command -v make || { apt-get update && apt-get install -y make; }; } &&
		make test ARGS='$args'" >"$log" 2>&1; then
		say "$1: $(inside "$1" "slurmctld -V"): $(grep -E ' (passed|skipped)' "$log" | tail -1)"
	else
		tail -40 "$log"
		say "$1: FAILED, see $log"
		return 1
	fi
}

[ "$(id -u)" -eq 0 ] || die "this needs root: debootstrap and systemd-nspawn do"
command -v debootstrap >/dev/null || die "debootstrap is not installed: apt-get install debootstrap"
command -v systemd-nspawn >/dev/null || die "systemd-nspawn is not installed: apt-get install systemd-container"
names=("$@")
[ "$#" -gt 0 ] || mapfile -t names < <(printf '%s\n' "${!TREES[@]}" | sort)
for name in "${names[@]}"; do
	[ -n "${TREES[$name]:-}" ] || die "no tree '$name'; there is: $(printf '%s\n' "${!TREES[@]}" | sort | xargs)"
done
mkdir -p "$PLACE"
failed=0
for name in "${names[@]}"; do
	try "$name" || failed=1
done
exit "$failed"
