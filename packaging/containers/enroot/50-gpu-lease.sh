#!/bin/bash
# 50-gpu-lease.sh: for /etc/enroot/hooks.d (also with pyxis). A container that is started in a job
# that shares a GPU gets the interposer and the daemon's socket; other containers stay as they are.
#
# In such a job the plugin has set GPU_LEASE_SOCKET and GPU_LEASE_LIBRARY.
set -eu

if [ -z "${GPU_LEASE_SOCKET-}" ] || [ -z "${GPU_LEASE_LIBRARY-}" ]; then
	exit 0
fi

library=$GPU_LEASE_LIBRARY
# The directory, since a daemon may make its socket anew.
directory=${GPU_LEASE_SOCKET%/*}
{
	printf '%s %s none x-create=file,bind,ro,nosuid,nodev\n' "$library" "$library"
	printf '%s %s none x-create=dir,bind,ro,nosuid,nodev\n' "$directory" "$directory"
} >>"$ENROOT_MOUNTS"
printf 'GPU_LEASE_SOCKET=%s\n' "$GPU_LEASE_SOCKET" >>"$ENROOT_ENVIRON"

# Behind what the image or the user preloads. With pyxis a task has the job's LD_PRELOAD, unless the
# container has one.
preloads=$(sed -n 's/^LD_PRELOAD=//p' "$ENROOT_ENVIRON" | tail -n 1)
if [ -z "$preloads" ] && [ -n "${PYXIS_RUNTIME_PATH-}" ]; then
	exit 0
fi
case ":${preloads// /:}:" in
*":$library:"*) ;;
*) printf 'LD_PRELOAD=%s\n' "${preloads:+$preloads:}$library" >>"$ENROOT_ENVIRON" ;;
esac
