#!/usr/bin/env bash
# The tests that need no Slurm, under Python 3.9 and what EL 9 has with it (cffi 1.14,
# systemd-python 234, Meson 0.63, rich 13.1), in a bare tree of Debian 11:
#     tests/matrix/python39.sh [TEST...]   TESTS where none is named
# The tree is kept below build/trees (about 2 GB) and serves the next time. What git tracks is tested.
# pip brings what Debian 11 has too old, and what only tests need. Needs root, debootstrap,
# systemd-nspawn, a Debian mirror and cuda.h (make setup).
set -euo pipefail
cd "$(dirname "$0")/../.."
. packaging/source.sh
PLACE=$PWD/build/trees
. tests/matrix/trees.sh

NAME=debian-11
TESTS=(
	tests/across tests/across_nodes tests/admin tests/base tests/chains tests/classes tests/cli
	tests/compat tests/config tests/connections tests/copies tests/core tests/docs tests/fault tests/fuzz tests/gpus
	tests/leasing tests/manual tests/matching tests/metrics tests/monitors tests/moving tests/mps
	tests/node tests/peers tests/placement tests/placer tests/policy tests/processes tests/record
	tests/saving tests/security tests/sim tests/slices tests/slurm_conf tests/slurm_room tests/spank
	tests/store tests/wire
)
# What these need is not there: slurmd, a Slurm that is not older than we know, shellcheck.
WITHOUT="not test_slurm_allocation and not test_slurm_inheritance and not test_slurm_jobs"
WITHOUT+=" and not test_node_gres and not test_numbers_of_libraries and not shellcheck"
BRING=(
	gcc git iproute2 libslurm-dev munge pkg-config procps python3-cffi python3-dev python3-setuptools
	python3-systemd python3-venv systemd
)
PIP=(
	meson==0.63.3 ninja prometheus-client==0.21.0 rich==13.1.0 'tomli>=1.1' nvidia-ml-py
	'cuda-bindings>=12' hypothesis ipykernel jupyter-client matplotlib numpy promql-parser==0.5.0 'pytest<9'
	pytest-timeout pytest-xdist scipy submitit
)

[ "$#" -gt 0 ] || set -- "${TESTS[@]}"
choose_trees "$NAME"
make_tree "$NAME"
log=$PLACE/$NAME.log src=$PLACE/$NAME$PWD
mkdir -p "$src" "$PLACE/$NAME/cuda"
find "$src" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
git ls-files -z | tar -c --null --ignore-failed-read -T - | tar -x -C "$src"
cp -u "$(cuda_include)/cuda.h" "$PLACE/$NAME/cuda/" # as it was, all that includes it is up to date
say "$NAME: Python 3.9, see $log"
if inside "$NAME" "set -e
	unset NOTIFY_SOCKET
	export DEBIAN_FRONTEND=noninteractive
	dpkg-query -s ${BRING[*]} || { apt-get update -qq && apt-get install -y -qq --no-install-recommends ${BRING[*]}; }
	[ -x /venv/bin/pip ] || python3 -m venv --system-site-packages /venv
	/venv/bin/pip install -q --upgrade pip
	/venv/bin/pip install -q $(printf "'%s' " "${PIP[@]}")
	cd $PWD
	export PATH=/venv/bin:\$PATH PYTHON=/venv/bin/python PYTHONPATH=$PWD:$PWD/build/meson/leased
	git init -q . && git add -A
	[ -f build/meson/build.ninja ] || meson setup build/meson -Ddriver_include=/cuda \
		-Dpython=/venv/bin/python -Dwerror=false -Dsystemd_version=247
	ninja -C build/meson
	python -m pytest -q -n ${WORKERS:-5} -k '$WITHOUT' $*" >"$log" 2>&1; then
	# systemd-nspawn may have the last word.
	say "$NAME: $(grep ' passed' "$log" | tail -1)"
else
	tail -40 "$log"
	say "$NAME: FAILED, see $log"
	exit 1
fi
