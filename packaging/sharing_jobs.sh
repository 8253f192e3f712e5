# shellcheck shell=sh
# Refuses to remove gpu-leased while jobs share GPUs of this node. Part of the scripts that packages
# run before the daemon's files are removed.

# The numbers of the jobs that share GPUs of this node, as the daemon says. Nothing where it does
# not run: asking would start it.
sharing_jobs() {
	systemctl --quiet is-active gpu-leased.service || return 0
	timeout 10 gpu-leasectl status --json 2>/dev/null | python3 -I -c '
import json, sys
print(*sorted({tenant["job_id"] for tenant in json.load(sys.stdin)["tenants"]}))' 2>/dev/null || :
}

refuse_while_jobs_share() {
	jobs=$(sharing_jobs)
	[ -n "$jobs" ] || return 0
	{
		echo "gpu-leased is not removed, since jobs share GPUs of this node: $jobs."
		echo "  Without it those that wait for a GPU would wait for ever."
		echo "  What to do: drain the node (scontrol update nodename=$(uname -n) state=drain reason=gpu-leased)"
		echo "  and remove the package when they have ended; or end them (scancel $jobs)."
	} >&2
	exit 1
}
