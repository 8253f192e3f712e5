#!/usr/bin/env bash
# Runs in a bare Debian tree, as run.sh starts it: installs the packages of /debs, uses, upgrades,
# downgrades, removes and purges them. Any step that is not as it should be ends it with a sentence.
# /emugpu has the emulated GPU.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
OURS=(gpu-leased gpu-lease-shim slurm-spank-gpu-share)
NEWER=99.0
CONFIG=/etc/gpu-lease/gpu-leased.toml
LINE=/etc/slurm/plugstack.conf.d/gpu-lease.conf
SHIPPED=/usr/share/gpu-lease/slurm-conf/plugstack.conf.d/gpu-lease.conf

fail() {
	printf 'FAILED: %s\n' "$*" >&2
	exit 1
}
step() { printf -- '-- %s\n' "$*"; }
version_of() { dpkg-query -W -f='${db:Status-Abbrev}${Version}' "$1" 2>/dev/null || true; }
# What a command says is written to /tmp/said; its exit status is the result.
said() { "$@" >/tmp/said 2>&1; }
has_said() { grep -q -- "$1" /tmp/said || { cat /tmp/said; fail "nobody says: $1"; }; }

# All files but what dpkg, apt and the processes write about themselves.
files() {
	find / -xdev \( -path /proc -o -path /sys -o -path /tmp -o -path /run -o -path /var/log \
		-o -path /var/cache -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /debs \
		-o -path /newer \) -prune -o -print | LC_ALL=C sort
}

# The packages of /debs as a newer release of us would be, in /newer.
make_newer() {
	local deb package
	mkdir -p /newer
	for deb in /debs/*.deb; do
		package=$(dpkg-deb -f "$deb" Package)
		dpkg-deb -R "$deb" "/newer/$package"
		sed -i "s/^Version: .*/Version: $NEWER/; s/gpu-lease-shim (= [^)]*)/gpu-lease-shim (= $NEWER)/" \
			"/newer/$package/DEBIAN/control"
		dpkg-deb -b "/newer/$package" "/newer/$package.deb" >/dev/null
		rm -rf "/newer/${package:?}"
	done
}

install_ours() {
	apt-get install -y -qq --no-install-recommends /debs/*.deb
}

starts_nothing() {
	local enabled
	enabled=$(find /etc/systemd -name 'gpu-lease*')
	[ -z "$enabled" ] || fail "installation enabled $enabled"
	[ ! -e "$LINE" ] || fail "installation put the plugin's line into $LINE"
	[ -z "$(pgrep -f /usr/sbin/gpu-leased || true)" ] || fail "installation started gpu-leased"
}

programs_run() {
	local release page
	release=$(dpkg-deb -f /debs/gpu-leased_*.deb Version)
	[ "$(gpu-leasectl --version)" = "${release%%+*}" ] || fail "gpu-leasectl --version"
	said gpu-leasectl check && fail "check finds nothing at fault in a bare tree"
	has_said "libgpulease.so can be loaded by everybody"
	has_said "the interposer is of this release"
	if grep -q Traceback /tmp/said; then fail "$(cat /tmp/said)"; fi
	dpkg -L "${OURS[@]}" >/tmp/listed
	for page in man1/gpu-leasectl.1 man5/gpu-leased.toml.5 man7/gpu-share.7 man8/gpu-leased.8; do
		# A bare tree leaves out manual pages; the package has them.
		grep -q "/usr/share/man/$page.gz" /tmp/listed || fail "no page $page"
	done
	python3 -I - <<-'PY' || fail "the packages' Python files are not compiled"
		import pathlib, sys
		missing = [
		    str(file) for file in pathlib.Path("/usr/lib/gpu-lease/python").rglob("*.py")
		    if not list(file.parent.glob(f"__pycache__/{file.stem}.*.pyc"))
		]
		sys.exit("\n".join(missing) or 0)
	PY
	LD_PRELOAD=/usr/lib/gpu-lease/libgpulease.so /bin/true
	PYTHONPATH=/usr/lib/gpu-lease/python python3 -c 'import _gpulease_slurmdb' ||
		fail "libslurm's binding cannot be imported"
}

# With the emulated GPU, as root, from the installed files alone.
daemon_runs() {
	local gpu daemon
	export EMUGPU_DIR=/run/emugpu
	mkdir -p /run/emugpu /run/gpu-leased /run/gpu-lease
	echo ClusterName=none >/run/gpu-lease/slurm.conf
	sed "s|^#slurm_conf = .*|slurm_conf = \"/run/gpu-lease/slurm.conf\"|" "$CONFIG" >/run/gpu-lease/daemon.toml
	chmod 644 /run/gpu-lease/daemon.toml
	/emugpu/emugpud --dir /run/emugpu --model /emugpu/emu-h200-small.ini >/tmp/emugpu.log 2>&1 &
	gpu=$!
	LD_LIBRARY_PATH=/emugpu gpu-leased --config /run/gpu-lease/daemon.toml >/tmp/daemon.log 2>&1 &
	daemon=$!
	for _ in $(seq 600); do
		! said gpu-leasectl status || break
		kill -0 $daemon 2>/dev/null || break
		sleep 0.1
	done
	said gpu-leasectl status || { cat /tmp/daemon.log /tmp/said; fail "gpu-leased does not answer"; }
	has_said "Emulated H200"
	kill $daemon
	wait $daemon || { cat /tmp/daemon.log; fail "gpu-leased ended with $?"; }
	kill $gpu
	wait $gpu || true
	[ -e /var/lib/gpu-leased/usage.db ] || fail "gpu-leased kept nothing"
}

schema() {
	python3 -I -c "import sqlite3; sqlite3.connect('/var/lib/gpu-leased/usage.db').execute('PRAGMA user_version = $1')"
}

upgrade_and_downgrade() {
	local known
	dpkg -i /newer/*.deb
	[ "$(version_of gpu-leased)" = "ii $NEWER" ] || fail "the upgrade: $(version_of gpu-leased)"
	known=$(python3 -I -c "import sqlite3; print(sqlite3.connect('/var/lib/gpu-leased/usage.db').execute('PRAGMA user_version').fetchone()[0])")
	schema 99000
	for package in "${OURS[@]}"; do
		said dpkg -i "/debs/$package"_*.deb && fail "$package goes back over a newer usage.db"
		has_said "usage.db has schema 99000, and this release knows $known"
		has_said "What to do: keep the newer release"
		[ "$(version_of "$package")" = "ii $NEWER" ] || fail "after the refusal: $(version_of "$package")"
	done
	# A minor step only adds, and the older release reads on.
	schema $((known + 1))
	dpkg -i /debs/*.deb || fail "an older release that can read usage.db is refused"
	schema "$known"
}

remove_with_the_line() {
	mkdir -p /etc/slurm/plugstack.conf.d
	ln -s "$SHIPPED" "$LINE"
	dpkg -r slurm-spank-gpu-share
	[ ! -L "$LINE" ] || fail "the plugin is gone and its line is not"
	dpkg -i /debs/slurm-spank-gpu-share_*.deb
	sed 's/^optional/required/' "$SHIPPED" >"$LINE"
	said dpkg -r slurm-spank-gpu-share && fail "a plugin that Slurm requires was removed"
	has_said "take the line with gpu_share.so out of $LINE"
	[ -e "$(dpkg -L slurm-spank-gpu-share | grep '/gpu_share\.so$')" ] || fail "its file is gone"
	rm "$LINE"
}

remove_and_purge() {
	local left
	dpkg -r gpu-leased
	for left in "$CONFIG" /var/lib/gpu-leased/usage.db; do
		[ -e "$left" ] || fail "removal took $left, which is for purge to take"
	done
	left=$(find /usr/lib/gpu-lease -name __pycache__)
	[ -z "$left" ] || fail "removal left $left"
	dpkg -P "${OURS[@]}"
	files >/tmp/after
	diff /tmp/before /tmp/after || fail "purge left or took these"
}

apt-get update -qq
step "install, with what the packages depend on"
apt-get install -y -qq --no-install-recommends procps >/dev/null
mkdir -p /etc/slurm/plugstack.conf.d
install_ours
apt-get install -y -qq --no-install-recommends slurm-client >/dev/null
step "once purged, a tree is as it was"
dpkg -P "${OURS[@]}"
files >/tmp/before
install_ours
starts_nothing
step "programs"
programs_run
daemon_runs
step "upgrade and downgrade"
make_newer
upgrade_and_downgrade
step "remove and purge"
remove_with_the_line
remove_and_purge
step "all as it should be"
