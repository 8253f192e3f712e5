# shellcheck shell=bash
# Where debootstrap gets a distribution from: the mirror that this machine's apt uses.

# The mirror of a distribution (debian or ubuntu, as os-release has it) on a machine of that
# distribution; nothing elsewhere.
apt_mirror() {
	# shellcheck disable=SC1091
	[ "$(. /etc/os-release && echo "$ID")" = "$1" ] || return 0
	# The suite itself: not its updates, nor its security fixes. The fields are apt's.
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
		awk '$1 !~ /-/ && !n++ { sub("/$", "", $2); print $2 }'
}

MIRROR=${MIRROR:-$(apt_mirror debian)}
UBUNTU=${UBUNTU:-$(apt_mirror ubuntu)}
