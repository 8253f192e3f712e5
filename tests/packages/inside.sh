#!/usr/bin/env bash
# Runs in a bare Debian tree, as run.sh starts it: installs the packages of /debs, uses, upgrades,
# downgrades, removes and purges them. Any step that is not as it should be ends it with a sentence.
set -euo pipefail
NEWER=99.0
# shellcheck source=tests/packages/steps.sh
. /steps.sh

version_of() { dpkg-query -W -f='${db:Status-Abbrev}${Version}' "$1" 2>/dev/null || true; }

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

upgrade_and_downgrade() {
	local known
	dpkg -i /newer/*.deb
	[ "$(version_of gpu-leased)" = "ii $NEWER" ] || fail "the upgrade: $(version_of gpu-leased)"
	known=$(schema 99000)
	for package in "${OURS[@]}"; do
		said dpkg -i "/debs/$package"_*.deb && fail "$package goes back over a newer usage.db"
		has_said "usage.db has schema 99000, and this release knows $known"
		has_said "What to do: keep the newer release"
		[ "$(version_of "$package")" = "ii $NEWER" ] || fail "after the refusal: $(version_of "$package")"
	done
	# A minor step only adds, and the older release reads on.
	schema $((known + 1)) >/dev/null
	dpkg -i /debs/*.deb || fail "an older release that can read usage.db is refused"
	schema "$known" >/dev/null
}

# A repository with Slurm's packages of another release, which have nothing.
bring_newer_slurm() {
	local repository=/tmp/slurm package
	mkdir -p $repository
	for package in $(dpkg-query -W -f='${source:Package} ${Package}\n' | sed -n 's/^slurm-wlm \(slurm.*\)/\1/p'); do
		mkdir -p "$repository/$package/DEBIAN"
		printf '%s\n' "Package: $package" "Version: 99.05.1-1" "Architecture: all" \
			"Maintainer: nobody <nobody@localhost>" "Description: Slurm of another release" \
			>"$repository/$package/DEBIAN/control"
		# As the real ones: all of a release or none.
		[ "$package" = slurm-wlm-basic-plugins ] ||
			echo "Depends: slurm-wlm-basic-plugins (= 99.05.1-1)" >>"$repository/$package/DEBIAN/control"
		dpkg-deb -b "$repository/$package" "$repository/$package.deb"
		dpkg-deb -f "$repository/$package.deb"
		printf '%s\n' "Filename: ./$package.deb" "Size: $(stat -c %s "$repository/$package.deb")" \
			"SHA256: $(sha256sum "$repository/$package.deb" | cut -d' ' -f1)" ""
	done | grep -v '^dpkg-deb' >$repository/Packages
	echo "deb [trusted=yes] file:$repository ./" >/etc/apt/sources.list.d/slurm.list
	apt-get update -qq
}

# Slurm and a plugin that was built for another release of it do not go together.
slurm_upgrade() {
	local now
	now=$(version_of slurm-wlm-basic-plugins)
	bring_newer_slurm
	apt-get upgrade -y -qq
	[ "$(version_of slurm-wlm-basic-plugins)" = "$now" ] || fail "Slurm goes on without the plugin"
	said apt-get install -s slurm-wlm-basic-plugins || true
	has_said "slurm-spank-gpu-share"
	rm /etc/apt/sources.list.d/slurm.list
	apt-get update -qq
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
	# As systemd makes it for the placer, which runs in no bare tree.
	mkdir -p /var/lib/gpu-lease-placer
	touch "$PLACED"
	dpkg -r gpu-leased
	for left in "$CONFIG" "$STORE" "$PLACED"; do
		[ -e "$left" ] || fail "removal took $left, which is for purge to take"
	done
	left=$(find /usr/lib/gpu-lease -name __pycache__)
	[ -z "$left" ] || fail "removal left $left"
	dpkg -P "${OURS[@]}"
	files >/tmp/after
	diff /tmp/before /tmp/after || fail "purge left or took these"
}

# A line of docs/admin.md that begins so, with an administrator who says yes.
typed() {
	local line
	line=$(grep "^$1" /lines) || fail "nobody is told to type $1"
	eval "${line/#apt install/apt-get install -y -qq}"
}

# From a checkout, as docs/admin.md says it goes without packages.
without_packages() {
	local wanted
	wanted=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' /checkout/leased/__init__.py)
	cd /checkout
	typed "apt install python3-cffi"
	apt-get install -y -qq --no-install-recommends make
	# As pip would; Debian 12 has no package of it.
	cp vendor/pynvml.py /usr/lib/python3/dist-packages/
	python3 -m compileall -q /usr/lib/python3/dist-packages/pynvml.py
	packaging/setup.sh node
	files >/tmp/before
	typed "make install"
	files | comm -13 /tmp/before - >/tmp/listed
	sed -i 's/\.[1578]$/&.gz/' /tmp/listed
	starts_nothing
	CONFIG=/usr/share/gpu-lease/slurm-conf/gpu-leased.toml
	programs_run "$wanted"
	daemon_runs
	typed "make uninstall"
	typed "rm -rf /etc/gpu-lease"
	files >/tmp/after
	diff /tmp/before /tmp/after || fail "make uninstall left or took these"
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
dpkg -L "${OURS[@]}" >/tmp/listed
release=$(dpkg-deb -f /debs/gpu-leased_*.deb Version)
programs_run "${release%%+*}"
python_is_compiled
daemon_runs
step "upgrade and downgrade"
make_newer
upgrade_and_downgrade
step "an upgrade of Slurm"
slurm_upgrade
step "remove and purge"
remove_with_the_line
remove_and_purge
step "install without packages, and remove"
without_packages
step "all as it should be"
