#!/usr/bin/env bash
# Build the Debian packages for aarch64 (Grace Hopper) in a bare tree, with Debian's cross compiler,
# and run what is in them under qemu-user (arm64_inside.py), in a tree of Debian for arm64:
#     tests/packages/arm64.sh [TREE...]      debian-12 where none is named
# The messages have the bytes that they have everywhere, Slurm's sbatch for arm64 knows --gpu-share,
# and two jobs take turns on an emulated GPU, all of which is of aarch64: the daemon, the
# interposer, the driver. No binfmt is needed: by_qemu.c stands for the programs that others start.
# Needs gcc; installs qemu-user-static where it is missing. What git tracks is tested. KEEP=1: the trees are kept.
set -euo pipefail
cd "$(dirname "$0")/../.."
. packaging/source.sh
PLACE=$PWD/build/package-trees
. tests/matrix/trees.sh
. tests/packages/build.sh
. tests/support/install.sh

QEMU=/usr/bin/qemu-aarch64-static
CROSS=cross,nocheck,$PROFILE
# What a machine with the packages has, beside what they need of libraries.
INCLUDE=python3,python3-cffi-backend,python3-rich,python3-systemd,slurm-client,slurm-wlm-basic-plugins
STARTED=(usr/bin/python3 usr/bin/sbatch emugpu/emugpud)

build_in() {
	local source=$1 tree=$2
	inside "$tree" "set -e; export DEBIAN_FRONTEND=noninteractive CUDA_INCLUDE=/cuda
		dpkg --add-architecture arm64
		apt-get update -qq
		apt-get install -y -qq --no-install-recommends build-essential crossbuild-essential-arm64 fakeroot lintian
		apt-get build-dep -y -qq --no-install-recommends -a arm64 -P $CROSS '/first/$source'
		cd '/first/$source' && dpkg-buildpackage -b -us -uc -a arm64 -P$CROSS
		$LINTIAN /first/*.changes
		for file in debian/*/usr/lib/gpu-lease/*.so debian/*/usr/lib/gpu-lease/python/*.so \
			debian/*/usr/lib/*/slurm-wlm/*.so debian/*/usr/lib/gpu-lease/gpu-lease-allocation; do
			aarch64-linux-gnu-readelf -h \$file | grep -q 'Machine: *AArch64' || { echo \"\$file is not of aarch64\"; exit 1; }
		done
		sed '/^exe_wrapper/d' packaging/aarch64.ini >/first/cross.ini
		export _PYTHON_SYSCONFIGDATA_NAME=_sysconfigdata__aarch64-linux-gnu
		meson setup emulator --cross-file /first/cross.ini -Ddriver_include=/cuda -Dwerror=false -Dsystemd_version=252
		ninja -C emulator tests/emugpu/emugpud tests/emugpu/libcuda.so.1 tests/emugpu/libnvidia-ml.so.1"
}

# A tree for arm64 with what the packages of DIRECTORY need; nothing of it has been set up.
make_arm_tree() {
	local tree=$PLACE/$1-arm64-bare directory=$2 suite script mirror keys libraries deb
	[ ! -d "$tree" ] || return 0
	find_tree "$1"
	libraries=$(for deb in "$directory"/*.deb; do dpkg-deb -f "$deb" Depends; done |
		grep -oE '\blib(slurm|python3\.)[0-9]+' | sort -u | paste -sd,)
	rm -rf "$tree.new"
	debootstrap --foreign --arch=arm64 --variant=minbase --include="$INCLUDE,$libraries" "$suite" \
		"$tree.new" "$mirror" "/usr/share/debootstrap/scripts/$script"
	for deb in "$tree.new"/var/cache/apt/archives/*.deb; do
		dpkg-deb -x "$deb" "$tree.new"
	done
	mv "$tree.new" "$tree"
}

try_in() {
	local built=$PLACE/$1/first tree=$PLACE/$2 deb program
	take_packages "$1" first "$tree/debs"
	for deb in "$tree"/debs/*.deb; do
		dpkg-deb -x "$deb" "$tree"
	done
	mkdir -p "$tree/emugpu" "$tree/checkout"
	cp "$built"/gpu-lease-*/emulator/tests/emugpu/{emugpud,libcuda.so.1,libnvidia-ml.so.1} \
		tests/emugpu/models/emu-h200-small.ini "$tree/emugpu/"
	git ls-files -z tests | tar -c --null --ignore-failed-read -T - | tar -x -C "$tree/checkout"
	cp "$QEMU" "$tree/usr/bin/"
	gcc -O2 -Wall -Wextra -Werror -static -o "$tree/by_qemu" tests/packages/by_qemu.c
	for program in "${STARTED[@]}"; do
		mv "$tree/$program" "$tree/$program.real"
		cp "$tree/by_qemu" "$tree/$program"
	done
	systemd-nspawn --quiet --directory="$tree" --register=no --keep-unit --pipe --timezone=off \
		/usr/bin/python3 /checkout/tests/packages/arm64_inside.py </dev/null
}

remove_copies() { rm -rf "$PLACE/$1-arm64-build" "$PLACE/$1-arm64"; }

build_and_try() {
	build_in "$1" "$2-arm64-build"
	make_arm_tree "$2" "$PLACE/$2-arm64-build/first"
	copy_of "$2-arm64-bare" "$2-arm64"
	try_in "$2-arm64-build" "$2-arm64"
}

try() {
	local source log=$PLACE/$1-arm64.log
	source=$(echo build/deb/source/gpu-lease-*)
	make_tree "$1"
	remove_copies "$1" # a run that was broken off leaves them half made
	copy_of "$1" "$1-arm64-build"
	bring_source "$source" "$1-arm64-build" first
	say "$1: build packages for arm64, run them under qemu-user: see $log"
	# No condition of an `if`: within one a command that fails would end nothing.
	set +e
	(set -e; build_and_try "$(basename "$source")" "$1") >"$log" 2>&1
	say_outcome "$1" "$log" $?
	set -e
	[ -n "${KEEP:-}" ] || remove_copies "$1"
}

[ "$#" -gt 0 ] || set -- debian-12
choose_trees "$@"
[ -x "$QEMU" ] || install_missing qemu-user-static
packaging/deb.sh source
failed=0
for name in "${names[@]}"; do
	try "$name"
done
exit "$failed"
