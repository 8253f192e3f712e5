#!/usr/bin/env bash
# Two booted machines with Slurm's own packages and ours, as an administrator installs them:
#     tests/cluster/run.sh [TREE...]       debian-13 where none is named
# Builds the packages of this checkout in a bare tree, and those of a next release with another
# version; makes a tree with Slurm, munge, MariaDB and what our packages depend on, as there is no
# network later; boots it twice (check_*.py). Trees are
# below build/package-trees and kept for the next time: 3 GB each. ARGS: what pytest gets besides.
# Needs root, debootstrap, systemd-nspawn, a Debian mirror, cgroups that systemd can use, and the
# right to make network namespaces and bridges: says at once where one of these is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
. packaging/source.sh
PLACE=$PWD/build/package-trees
PYTHON=${PYTHON:-build/venv/bin/python}
. tests/matrix/trees.sh
. tests/packages/build.sh

NEXT=99.0.0
SITE=(
	systemd-sysv dbus munge procps iproute2
	slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins mariadb-server
)

# The same release twice, but for its version.
build_packages() {
	local source=$1 name=$2 next=$PLACE/$2-build/next tree=$PLACE/$2-node now
	now=$(release_version)
	copy_of "$name" "$name-build"
	bring_source "$source" "$name-build" now next
	sed -i "s/^__version__ = .*/__version__ = \"$NEXT\"/" "$next"/*/leased/__init__.py
	sed -i "1s/($now)/($NEXT)/" "$next"/*/debian/changelog
	source=$(basename "$source")
	inside "$name-build" "set -e; $(install_needs "/now/$source")
		cd /now/$source && $BUILD
		cd /next/$source && $BUILD"
	take_packages "$name-build" now "$tree/debs/now"
	take_packages "$name-build" next "$tree/debs/next"
	make_image "$source" "$name-build"
	rm -rf "$tree/debs/image"
	mv "$PLACE/$name-build/image" "$tree/debs/image"
}

# What `make install` puts below a directory, with the system's Python and nothing of pip.
make_image() {
	inside "$2" "set -e; cd /now/$1; rm -rf /image; export DESTDIR=/image
		apt-get install -y -qq --no-install-recommends make
		meson setup build/meson -Dtests=false -Ddriver_include=/cuda -Dwerror=false \
			-Dnvml_binding=\$PWD/vendor/pynvml.py \
			-Dslurm_plugin_dir=/usr/lib/\$(dpkg-architecture -qDEB_HOST_MULTIARCH)/slurm-wlm
		ninja -C build/meson
		meson install -C build/meson --no-rebuild"
}

# What a site has before us. Nothing of it starts by itself.
make_node_tree() {
	local tree=$PLACE/$1-node
	[ ! -d "$tree" ] || return 0
	rm -rf "$tree.new"
	cp -a "$PLACE/$1" "$tree.new"
	printf '#!/bin/sh\nexit 101\n' >"$tree.new/usr/sbin/policy-rc.d"
	chmod 755 "$tree.new/usr/sbin/policy-rc.d"
	inside "$1-node.new" "set -e; export DEBIAN_FRONTEND=noninteractive
		apt-get update -qq
		apt-get install -y -qq --no-install-recommends ${SITE[*]}
		systemctl disable slurmctld slurmd slurmdbd mariadb munge
		systemctl enable systemd-networkd
		rm -f /usr/sbin/policy-rc.d /etc/munge/munge.key"
	echo 'APT::Get::Assume-Yes "true";' >>"$tree.new/etc/apt/apt.conf.d/99gpu-lease"
	mv "$tree.new" "$tree"
}

# What our packages depend on and recommend, of the distribution's; and the MPI of users' jobs.
bring_dependencies() {
	inside "$1-node" "set -e; export DEBIAN_FRONTEND=noninteractive
		apt-get update -qq
		apt-get install -y -qq --no-install-recommends openmpi-bin
		apt-get install -y -qq /debs/now/*.deb
		dpkg -P gpu-leased gpu-lease-shim slurm-spank-gpu-share
		rm -rf /var/cache/apt/archives"
}

make_ready() {
	make_node_tree "$2"
	build_packages "$1" "$2"
	bring_dependencies "$2"
}

try() {
	local source status log=$PLACE/$1-cluster.log
	source=$(echo build/deb/source/gpu-lease-*)
	make_tree "$1"
	say "$1: a tree with Slurm, the packages of this release and of a next one: see $log"
	# No condition of an `if`: within one a command that fails would end nothing.
	set +e
	(set -e; make_ready "$source" "$1") >"$log" 2>&1
	status=$?
	set -e
	if [ "$status" -ne 0 ]; then
		say_failed "$1" "$log"
		return 0
	fi
	say "$1: two booted machines"
	# shellcheck disable=SC2086 # words for pytest
	GPU_LEASE_CLUSTER=$1 "$PYTHON" -m pytest -x -p no:cacheprovider -o timeout=1200 \
		tests/cluster/check_*.py ${ARGS:-} || failed=1
}

[ "$#" -gt 0 ] || set -- debian-13
choose_trees "$@"
reason=$("$PYTHON" -c 'from tests.cluster import conftest; print(conftest.cannot_boot())')
[ -z "$reason" ] || die "no two machines can be booted here, by systemd-nspawn and on a bridge of their own: $reason"
[ -x "$EMUGPU/emugpud" ] || die "the emulated GPU is not built: make setup"
packaging/deb.sh source
failed=0
for name in "${names[@]}"; do
	try "$name"
done
exit "$failed"
