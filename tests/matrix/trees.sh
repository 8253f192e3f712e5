# shellcheck shell=bash
# Bare Debian trees, which have one Slurm release each, made by debootstrap below $PLACE. Needs root,
# debootstrap, systemd-nspawn and mirrors (MIRROR and UBUNTU, mirror.sh).
. tests/matrix/mirror.sh

# Name: suite, script of debootstrap (an older debootstrap does not know newer suites); and where it
# is not Debian's, its mirror and that mirror's keys (of the package ubuntu-keyring).
declare -A TREES=(
	[debian-12]="bookworm bookworm" # Slurm 22.05
	[debian-13]="trixie trixie"     # Slurm 24.11
	[debian-testing]="testing sid"  # Slurm 26.05
)
# Made only where they are named. Neither the mirror nor the keys of Ubuntu's are Debian's.
UBUNTU_KEYS=${UBUNTU_KEYS:-/usr/share/keyrings/ubuntu-archive-keyring.gpg}
declare -A OTHER_TREES=(
	[debian-11]="bullseye bullseye" # Python 3.9, as EL 9 has it
	[ubuntu-24.04]="noble gutsy ${UBUNTU:--} $UBUNTU_KEYS" # Slurm 23.11
)
CERTIFICATES=/etc/ssl/certs/ca-certificates.crt
PROGRAM=$(basename "$(dirname "$0")")

say() { printf '== %s\n' "$*"; }
die() {
	printf '%s: %s\n' "$PROGRAM" "$*" >&2
	exit 2
}

# Those that are named, or all; names: the result.
choose_trees() {
	local name
	[ "$(id -u)" -eq 0 ] || die "this needs root: debootstrap and systemd-nspawn do"
	command -v debootstrap >/dev/null || die "debootstrap is not installed: apt-get install debootstrap"
	command -v systemd-nspawn >/dev/null || die "systemd-nspawn is not installed: apt-get install systemd-container"
	names=("$@")
	[ "$#" -gt 0 ] || mapfile -t names < <(printf '%s\n' "${!TREES[@]}" | sort)
	for name in "${names[@]}"; do
		[ -n "${TREES[$name]:-}${OTHER_TREES[$name]:-}" ] ||
			die "no tree '$name'; there is: $(printf '%s\n' "${!TREES[@]}" "${!OTHER_TREES[@]}" | sort | xargs)"
	done
	mkdir -p "$PLACE"
}

# Sets suite, script, mirror and keys, as TREES and OTHER_TREES have them.
find_tree() {
	read -r suite script mirror keys <<<"${TREES[$1]:-${OTHER_TREES[$1]}}"
	mirror=${mirror:-$MIRROR}
	[ -n "${mirror#-}" ] ||
		die "$1: this machine's apt has no mirror of its distribution: name one by MIRROR (Debian) or UBUNTU"
}

# A directory with its name is a whole tree: it gets the name when it is one.
make_tree() {
	local tree=$PLACE/$1 suite script mirror keys options=()
	[ ! -d "$tree" ] || return 0
	find_tree "$1"
	[ -z "$keys" ] || options=("--keyring=$keys" "--components=main,universe")
	[ -z "$keys" ] || [ -r "$keys" ] ||
		die "$1: there are no keys of its mirror at $keys: install ubuntu-keyring (Debian has it from 13 on), or set UBUNTU_KEYS"
	say "$1: debootstrap"
	rm -rf "$tree.new"
	debootstrap --variant=minbase "${options[@]}" "$suite" "$tree.new" "$mirror" \
		"/usr/share/debootstrap/scripts/$script" >"$tree.log" 2>&1 ||
		die "$1: debootstrap failed; is its mirror $mirror there? See $tree.log"
	# The lists of a mirror that is some days behind are good enough.
	echo 'Acquire::Check-Valid-Until "false";' >"$tree.new/etc/apt/apt.conf.d/99gpu-lease"
	mv "$tree.new" "$tree"
}

# Run a command in a directory of $PLACE, with the machine's network and its certificates. Nothing is
# mounted at its /tmp, where this checkout may be.
inside() {
	local tree=$PLACE/$1 pass=()
	if [ -e "$CERTIFICATES" ]; then
		cp "$CERTIFICATES" "$tree/etc/machine-certificates.crt"
		pass=(-E PIP_CERT=/etc/machine-certificates.crt -E SSL_CERT_FILE=/etc/machine-certificates.crt)
	fi
	SYSTEMD_NSPAWN_TMPFS_TMP=0 systemd-nspawn --quiet --directory="$tree" --register=no --keep-unit --pipe \
		--resolv-conf=copy-host --timezone=off "${pass[@]}" /bin/bash -c "$2" </dev/null
}
