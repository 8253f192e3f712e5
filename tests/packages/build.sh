# shellcheck shell=bash disable=SC2034,SC2153 # variables of those that read this
# Debian packages built in a tree of tests/matrix/trees.sh, which is a copy of a bare one.

EMUGPU=build/meson/tests/emugpu
PROFILE=pkg.gpu-lease.cuda-header

copy_of() {
	[ -d "$PLACE/$2" ] || cp -a "$PLACE/$1" "$PLACE/$2"
}

# bring_source SOURCE TREE PLACE...: the source at places of the tree, in a directory of its name.
bring_source() {
	local source=$1 tree=$PLACE/$2 place
	shift 2
	mkdir -p "$tree/cuda"
	cp "$(cuda_include)/cuda.h" "$tree/cuda/"
	for place in "$@"; do
		rm -rf "${tree:?}/$place"
		mkdir -p "$tree/$place"
		cp -a "$source" "$tree/$place/"
	done
}

# Commands that make a tree ready to build a source.
install_needs() {
	echo "export DEBIAN_FRONTEND=noninteractive CUDA_INCLUDE=/cuda
		apt-get update -qq
		apt-get install -y -qq --no-install-recommends build-essential fakeroot lintian
		apt-get build-dep -y -qq --no-install-recommends -P $PROFILE '$1'"
}

BUILD="dpkg-buildpackage -b -us -uc -P$PROFILE"
# They are for no distribution's archive, so none has to know the one that the changelog names.
LINTIAN="lintian --allow-root --fail-on error,warning --tag-display-limit 0 \
--suppress-tags bad-distribution-in-changes-file"

# bring_tests TREE SCRIPT: it, steps.sh and the emulated GPU.
bring_tests() {
	mkdir -p "$PLACE/$1/emugpu"
	cp "$EMUGPU"/{emugpud,libcuda.so.1,libnvidia-ml.so.1} tests/emugpu/models/emu-h200-small.ini \
		"$PLACE/$1/emugpu/"
	cp "tests/packages/$2" tests/packages/steps.sh "$PLACE/$1/"
}

# Packages without those of debugging symbols: take_packages TREE PLACE DIRECTORY
take_packages() {
	mkdir -p "$3"
	rm -f "$3"/*
	find "$PLACE/$1/$2" -maxdepth 1 -name '*.deb' ! -name '*-dbgsym_*' -exec cp {} "$3/" \;
}

# say_outcome TREE LOG STATUS: a step of a tree is a line `-- STEP` in its log.
say_outcome() {
	if [ "$3" -eq 0 ]; then
		say "$1: $(grep -c '^-- ' "$2") steps, all as they should be"
	else
		say_failed "$1" "$2"
	fi
}

# say_failed TREE LOG: sets failed.
say_failed() {
	tail -40 "$2"
	say "$1: FAILED, see $2"
	failed=1
}
