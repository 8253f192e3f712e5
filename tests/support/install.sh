# shellcheck shell=bash
# What some targets need and `make setup` does not install.

# install_missing PACKAGE...: Debian packages; needs root where one is missing.
install_missing() {
	local name missing=()
	for name; do
		[ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
	done
	[ "${#missing[@]}" -gt 0 ] || return 0
	printf '== installing Debian packages: %s\n' "${missing[*]}"
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
		>build/apt.log 2>&1 || { tail -20 build/apt.log >&2; return 1; }
}
