#!/usr/bin/env bash
# Make a checkout ready: Debian packages, a venv in build/venv, the C build in build/meson.
# Each step looks first and does nothing where nothing is missing, so a machine
# that has everything needs no network. With PYTHON set to another Python than the
# venv's, nothing is installed: what is missing is named.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/source.sh

# The system's Python: slurmstepd embeds its libpython, and a Python under
# somebody's home directory would fail for every other user.
system_python=/usr/bin/python3
# What building and installing need; `setup.sh node` stops there, and starts no service.
packages=(
	gcc make pkg-config python3 python3-dev python3-venv python3-cffi python3-systemd
	libslurm-dev python3-rich
	python3-setuptools # of cffi, from Python 3.12 on; on Ubuntu 24.04 its package does not bring it
)
extras=demo
# A warning that only a newer compiler has keeps no node from what it installs.
build_options=(-Dwerror=false)
if [ "${1:-all}" != node ]; then
	build_options=()
	# The tests and the demo start a Slurm of their own from these.
	packages+=(
		slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins
		munge mariadb-server shellcheck systemd systemd-container debootstrap
	)
	extras=demo,test
fi
# Services that these packages bring, which nobody here wants to run for the whole machine.
services=(slurmctld slurmd slurmdbd munge mariadb)
policy=/usr/sbin/policy-rc.d

say() { printf '== %s\n' "$*"; }
die() {
	printf 'setup: %s\n' "$*" >&2
	exit 1
}

# What runs, by the name it has in PATH or /usr/sbin; for machines where nothing may be installed.
needed_commands=(gcc meson ninja slurmctld slurmd slurmdbd sbatch srun sacct munged mariadbd)
needed_modules=(cffi systemd.daemon pynvml rich numpy cuda.bindings.driver)

if [ "${1:-all}" = node ]; then
	needed_commands=(gcc meson ninja)
	needed_modules=(cffi)
fi

look_for_all() {
	local name missing=()
	for name in "${needed_commands[@]}"; do
		PATH="$PATH:/usr/sbin:/sbin" command -v "$name" >/dev/null || missing+=("$name")
	done
	for name in "${needed_modules[@]}"; do
		"$PYTHON" -c "import $name" 2>/dev/null || missing+=("Python's $name")
	done
	[ "${#missing[@]}" -eq 0 ] || die "this is missing: ${missing[*]}; with PYTHON=$PYTHON nothing is installed, so install it, or leave PYTHON out"
}

missing_packages() {
	local name
	for name in "${packages[@]}"; do
		[ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || echo "$name"
	done
}

install_packages() {
	command -v dpkg-query >/dev/null || die "this is no Debian or Ubuntu machine; install these by hand: ${packages[*]}"
	local missing as_root=()
	mapfile -t missing < <(missing_packages)
	[ "${#missing[@]}" -gt 0 ] || return 0
	if [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null || die "installing ${missing[*]} needs root; run as root or install sudo"
		as_root=(sudo)
	fi
	say "installing Debian packages: ${missing[*]}"
	hold_services "${as_root[@]}"
	"${as_root[@]}" apt-get update -qq
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends "${missing[@]}" >build/apt.log 2>&1 ||
		{ tail -20 build/apt.log >&2; die "apt-get failed, see build/apt.log"; }
	disable_services "${as_root[@]}"
}

# Packages of services start them at once, unless this file says no.
hold_services() {
	[ ! -e "$policy" ] || return 0
	say "their services are not started: $policy says so until they are installed"
	printf '#!/bin/sh\nexit 101\n' | "$@" tee "$policy" >/dev/null
	"$@" chmod 755 "$policy"
	# shellcheck disable=SC2064 # the command of now
	trap "$* rm -f $policy" EXIT
}

# ... and enable them for the next boot. Those that were there before stay as they are.
disable_services() {
	local name
	command -v systemctl >/dev/null || return 0
	for name in "${services[@]}"; do
		case " ${missing[*]} " in
		*" $name "* | *" $name-server "*)
			say "disabling $name.service, which was just installed"
			"$@" systemctl disable --quiet "$name.service" 2>/dev/null || true
			;;
		esac
	done
}

make_venv() {
	local stamp=build/venv/.installed wanted
	wanted=$(sha256sum pyproject.toml | cut -d' ' -f1)
	# With what the tests need there is all that installing needs.
	case "$(cat "$stamp" 2>/dev/null)" in "$wanted" | "$wanted $extras") return 0 ;; esac
	say "installing Python packages into build/venv"
	[ -x build/venv/bin/python ] || "$system_python" -m venv --system-site-packages build/venv
	build/venv/bin/python -m pip install -q --disable-pip-version-check -e ".[$extras]" >build/pip.log 2>&1 ||
		{ tail -20 build/pip.log >&2; die "pip failed, see build/pip.log"; }
	# The cffi extensions are built by meson and found from there.
	build/venv/bin/python - <<-'PY'
		import pathlib, sysconfig
		site = pathlib.Path(sysconfig.get_path("purelib"))
		(site / "gpu-lease-build.pth").write_text(f"{pathlib.Path('build/meson/leased').resolve()}\n")
	PY
	[ "$extras" = demo ] && wanted+=" $extras"
	echo "$wanted" >"$stamp"
}

# A checkout that was first installed from passes warnings, which whoever works on it must not.
keep_werror() {
	[ "${#build_options[@]}" -eq 0 ] || return 0
	! grep -qx 'werror = false' build/meson/meson-private/cmd_line.txt || meson configure build/meson -Dwerror=true
}

build_c() {
	local include
	export PATH="$PWD/build/venv/bin:$PATH"
	if [ ! -f build/meson/build.ninja ]; then
		include=$(cuda_include)
		say "configuring the C build"
		meson setup build/meson -Ddriver_include="$include" -Dpython="$system_python" "${build_options[@]}" \
			>build/meson-setup.log 2>&1 || { tail -20 build/meson-setup.log >&2; die "meson failed, see build/meson-setup.log"; }
		say "building the C parts: a minute or two, the first time"
	fi
	keep_werror
	ninja -C build/meson >build/ninja.log 2>&1 || { tail -40 build/ninja.log >&2; die "the C build failed, see build/ninja.log"; }
}

mkdir -p build
if [ "${PYTHON:-build/venv/bin/python}" = build/venv/bin/python ]; then
	install_packages
	make_venv
else
	look_for_all
fi
build_c
