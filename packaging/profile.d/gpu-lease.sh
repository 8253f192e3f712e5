# shellcheck shell=sh
# gpu-lease.sh: for shells in ssh sessions that pam_slurm_adopt has put into a job. Their
# environment is sshd's: without this, what they run on a shared GPU has no lease.
# Link it into /etc/profile.d. Other shells it costs one look at their cgroup.
if [ -z "${GPU_LEASE_SOCKET-}" ] && [ -r /proc/self/cgroup ]; then
	case "$(cat /proc/self/cgroup)" in
	*/step_extern*) eval "$(gpu-leasectl env 2>/dev/null)" ;;
	esac
fi
