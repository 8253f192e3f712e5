#!/usr/bin/env bash
# Real containers: installs podman and musl's compiler, which `make setup` does not, makes a root file
# system of Debian 11 in build/containers, and runs the tests of this folder. Needs root.
set -euo pipefail
cd "$(dirname "$0")/../.."

. tests/support/install.sh
install_missing podman crun uidmap musl-tools debootstrap

root=build/containers/old-glibc
. tests/matrix/mirror.sh
if [ ! -d "$root" ]; then
	[ -n "$MIRROR" ] || { echo "$0: name a Debian mirror by MIRROR" >&2; exit 2; }
	echo "== making $root"
	mkdir -p build/containers
	rm -rf "$root.new"
	debootstrap --variant=minbase --include=python3-minimal,libpython3-stdlib bullseye "$root.new" \
		"$MIRROR" >build/containers/debootstrap.log 2>&1 ||
		{ tail -20 build/containers/debootstrap.log >&2; exit 1; }
	mv "$root.new" "$root"
fi

# shellcheck disable=SC2086 # several arguments
exec "${PYTHON:-build/venv/bin/python}" -m pytest -q tests/containers ${ARGS:-}
