# shellcheck shell=sh
# Refuses to install an older release where it could not go on with what a newer one left behind.
# Part of the scripts that packages run before a file is replaced; #VERSION#, #SCHEMA# and #WIRE# are
# of this release.

refuse() {
	{
		echo "gpu-lease: #VERSION# is not installed over the newer $1, since"
		echo "  $2."
		echo "  What to do: $3."
	} >&2
	exit 1
}

# The schema of the store's file. While the daemon has the file open, what it last wrote may be in
# the log beside it, which SQLite reads; without a log, `user_version` in the file's header is it.
schema_of() {
	python3 -I -c '
import sqlite3, sys
store = sqlite3.connect("file:" + sys.argv[1] + "?mode=ro", uri=True)
print(store.execute("PRAGMA user_version").fetchone()[0])' "$1" 2>/dev/null && return 0
	# shellcheck disable=SC2046 # four numbers
	set -- $(od -An -j60 -N4 -tu1 "$1")
	[ $# -eq 4 ] || return 0
	echo $((($1 << 24) + ($2 << 16) + ($3 << 8) + $4))
}

# state_dir CONF: where the daemon has its store. The table of the placer has a key of that name too.
state_dir() {
	moved=
	[ ! -r "$1" ] || moved=$(sed -n "/^ *\[daemon\]/,/^ *\[/ s/^ *state_dir *= *[\"']\([^\"']*\)[\"'].*/\1/p" "$1")
	echo "${moved:-/var/lib/gpu-leased}"
}

# The protocol that the running daemon speaks; nothing where none answers.
running_wire() {
	command -v gpu-leasectl >/dev/null || return 0
	timeout 10 gpu-leasectl status --json 2>/dev/null |
		sed -n 's/.*"wire_version": *\([0-9]*\).*/\1/p' | head -n 1
}

# refuse_if_newer VERSION: the version that is installed.
refuse_if_newer() {
	store=$(state_dir /etc/gpu-lease/gpu-leased.toml)/usage.db
	if [ -r "$store" ]; then
		schema=$(schema_of "$store")
		# Within 1000 a release only adds to the schema, and an older one can read it.
		if [ "$((${schema:-0} / 1000))" -gt "$((#SCHEMA# / 1000))" ]; then
			refuse "$1" "$store has schema $schema, and this release knows $((#SCHEMA#))" \
				"keep the newer release; or, when no job shares a GPU of this node, stop gpu-leased and move the file away (mv $store $store.newer)"
		fi
	fi
	wire=$(running_wire)
	if [ "${wire:-0}" -gt "$((#WIRE#))" ]; then
		refuse "$1" "the running gpu-leased speaks version $wire of its protocol, and processes of jobs that began with it would wait for it to come back" \
			"drain the node, and when no job shares a GPU any more run systemctl stop gpu-leased.service gpu-leased.socket gpu-leased-admin.socket, then install again"
	fi
}
