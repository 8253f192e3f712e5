# shellcheck shell=bash disable=SC2034 # variables of those that read this
# What the tests inside of trees have in common (inside.sh, rpm_inside.sh). A step that is not as it
# should be ends its script with a sentence. /emugpu has the emulated GPU.
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
OURS=(gpu-leased gpu-lease-shim slurm-spank-gpu-share)
CONFIG=/etc/gpu-lease/gpu-leased.toml
LINE=/etc/slurm/plugstack.conf.d/gpu-lease.conf
SHIPPED=/usr/share/gpu-lease/slurm-conf/plugstack.conf.d/gpu-lease.conf
STORE=/var/lib/gpu-leased/usage.db
PLACED=/var/lib/gpu-lease-placer/jobs.json

fail() {
	printf 'FAILED: %s\n' "$*" >&2
	exit 1
}
step() { printf -- '-- %s\n' "$*"; }
# What a command says is written to /tmp/said; its exit status is the result.
said() { "$@" >/tmp/said 2>&1; }
has_said() { grep -q -- "$1" /tmp/said || { cat /tmp/said; fail "nobody says: $1"; }; }

# All files but what package managers and processes write about themselves.
files() {
	find / -xdev \( -path /proc -o -path /sys -o -path /tmp -o -path /run -o -path /var/log \
		-o -path /var/cache -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/lib/rpm \
		-o -path /var/lib/dnf -o -path /debs -o -path /newer -o -path /rpms -o -path /checkout \) \
		-prune -o -print | LC_ALL=C sort
}

starts_nothing() {
	local enabled
	enabled=$(find /etc/systemd -name 'gpu-lease*')
	[ -z "$enabled" ] || fail "installation enabled $enabled"
	[ ! -e "$LINE" ] || fail "installation put the plugin's line into $LINE"
	[ -z "$(pgrep -f '/usr/sbin/gpu-lease' || true)" ] || fail "installation started $(pgrep -af /usr/sbin/gpu-lease)"
}

# programs_run RELEASE: those that were installed, of which /tmp/listed has all files.
programs_run() {
	local program page
	for program in gpu-leasectl gpu-lease-placer; do
		[ "$($program --version)" = "$1" ] || fail "$program --version: $($program --version)"
	done
	said gpu-leasectl check && fail "check finds nothing at fault in a bare tree"
	has_said "libgpulease.so can be loaded by everybody"
	has_said "the interposer is of this release"
	if grep -q Traceback /tmp/said; then fail "$(cat /tmp/said)"; fi
	for page in man1/gpu-leasectl.1 man5/gpu-leased.toml.5 man7/gpu-share.7 man8/gpu-leased.8 \
		man8/gpu-lease-placer.8; do
		# A bare tree leaves out manual pages; the package has them.
		grep -q "/usr/share/man/$page.gz" /tmp/listed || fail "no page $page"
	done
	LD_PRELOAD=/usr/lib/gpu-lease/libgpulease.so /bin/true
	PYTHONPATH=/usr/lib/gpu-lease/python python3 -c 'import _gpulease_slurmdb' ||
		fail "libslurm's binding cannot be imported"
	# The functions in C are loaded before it is found that there is nothing to open.
	said env PYTHONPATH=/usr/lib/gpu-lease/python python3 -c 'from gpu_lease.chain import Chain; Chain()' &&
		fail "a chain is opened in a bare tree"
	has_said "OutsideError: there is no CUDA driver here"
}

python_is_compiled() {
	python3 -I - <<-'PY' || fail "the packages' Python files are not compiled"
		import pathlib, sys
		missing = [
		    str(file) for file in pathlib.Path("/usr/lib/gpu-lease/python").rglob("*.py")
		    if not list(file.parent.glob(f"__pycache__/{file.stem}.*.pyc"))
		]
		sys.exit("\n".join(missing) or 0)
	PY
}

# With the emulated GPU, as root, from the installed files alone.
daemon_runs() {
	local gpu daemon
	export EMUGPU_DIR=/run/emugpu
	mkdir -p /run/emugpu /run/gpu-leased /run/gpu-lease
	echo ClusterName=none >/run/gpu-lease/slurm.conf
	sed "s|^#\?slurm_conf = .*|slurm_conf = \"/run/gpu-lease/slurm.conf\"|" "$CONFIG" >/run/gpu-lease/daemon.toml
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
	[ -e "$STORE" ] || fail "gpu-leased kept nothing"
}

# The schema of the store: as it is, or to be what is given.
schema() {
	python3 -I -c "
import sqlite3, sys
store = sqlite3.connect('$STORE')
print(store.execute('PRAGMA user_version').fetchone()[0])
if sys.argv[1:]:
    store.execute(f'PRAGMA user_version = {sys.argv[1]}')" "$@"
}
