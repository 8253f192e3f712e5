#!/usr/bin/env bash
# Runs in a bare Debian tree, as rpm.sh starts it: installs the packages of /rpms/now, uses them,
# upgrades to those of /rpms/next, downgrades and erases them. Dependencies are always checked.
set -euo pipefail
# shellcheck source=tests/packages/steps.sh
. /steps.sh

NEXT=99.0.0
SITE=/rpms/site # a repository of packages that stand in for the distribution's
ASKED=/tmp/systemctl.asked
# What the packages depend on, and Debian's packages of the same: in these Debian's versions and
# libraries are looked up, so that a dependency on something that is not there is found.
declare -A DEBIANS=(
	[bash]="bash dash"
	[glibc]=libc6
	[python3]="python3-minimal"
	[python3-libs]="libpython3.*[0-9]"
	[python3-cffi]=python3-cffi-backend
	[python3-rich]=python3-rich
	[python3-systemd]=python3-systemd
	[slurm]="slurm-wlm-basic-plugins"
	[slurm-libs]="libslurm[0-9]*"
)
# What packages of that name provide besides their name and their libraries.
declare -A PROVIDED=(
	[bash]="/bin/sh /usr/bin/sh /bin/bash /usr/bin/bash"
	[glibc]="rtld(GNU_HASH)"
	[python3]="/usr/bin/python3"
)

rpm_version() { rpm -q --qf '%{VERSION}' "$1"; }
is_installed() { rpm -q "$1" >/dev/null; }
# dnf of a machine that has the repository and no other, and whose administrator says yes.
dnf() {
	command dnf -y --disablerepo='*' --repofrompath="site,$SITE" --setopt=site.gpgcheck=0 \
		--setopt=localpkg_gpgcheck=0 --releasever=1 "$@"
}
# The document's line of dnf with this word, where the packages lie.
typed() {
	local line
	line=$(grep "^dnf $1 " /lines) || fail "nobody is told to type dnf $1"
	cd /rpms/now
	eval "$line"
}

# The Debian packages that are installed and have names of these patterns.
# shellcheck disable=SC2086
debians() { dpkg-query -W -f='${db:Status-Status} ${Package}\n' $1 2>/dev/null | sed -n 's/^installed //p' || true; }

# stands_in NAME VERSION PROVIDED...: a package that has nothing.
stands_in() {
	local name=$1 version=$2
	shift 2
	{
		printf 'Name: %s\nVersion: %s\nRelease: 1\nBuildArch: noarch\n' "$name" "$version"
		printf 'Summary: Stands in for that of the distribution\nLicense: none\n'
		[ "$#" -eq 0 ] || printf 'Provides: %s\n' "$@"
		printf '%%description\nNothing.\n%%files\n'
	} >"/tmp/$name.spec"
	rpmbuild --quiet -bb --define "_rpmdir $SITE" "/tmp/$name.spec"
}

make_repository() {
	local name debian version provided
	rm -rf "$SITE" /var/cache/dnf
	mkdir -p "$SITE"
	for name in "${!DEBIANS[@]}"; do
		debian=$(debians "${DEBIANS[$name]}")
		[ -n "$debian" ] || fail "no Debian package is installed for $name"
		# shellcheck disable=SC2086 # each is a word
		version=$(dpkg-query -W -f='${source:Upstream-Version}\n' $debian | head -n 1)
		# shellcheck disable=SC2086
		mapfile -t provided < <(dpkg -L $debian | grep '\.so' |
			/usr/lib/rpm/elfdeps --provides --assume-exec | sort -u)
		# shellcheck disable=SC2206
		provided+=(${PROVIDED[$name]:-})
		stands_in "$name" "${version//[-~]/.}" "${provided[@]}"
	done
	createrepo_c --quiet "$SITE"
}

# systemctl of a machine that is up, on which our units do not run: it writes down what it is asked.
pretend_to_be_up() {
	mkdir -p /run/systemd/system
	[ -e /usr/bin/systemctl.real ] || mv /usr/bin/systemctl /usr/bin/systemctl.real
	cat >/usr/bin/systemctl <<-SH
		#!/bin/sh
		echo "\$*" >>$ASKED
		case "\$*" in *is-active*) test -e /run/is-active ;; esac
	SH
	chmod 755 /usr/bin/systemctl
	: >$ASKED
}

was_asked() { grep -q -- "$1" $ASKED || { cat $ASKED; fail "systemctl was not asked: $1"; }; }

# A dependency that nobody provides is named, and nothing is installed.
refused_without_dependencies() {
	local need
	said rpm -i /rpms/now/*.rpm && fail "the packages are installed without what they depend on"
	for need in "python3 >= 3.9" "python3-cffi >= 1.14" "python3-rich >= 13" \
		"python3-systemd >= 234" "slurm >= " "slurm < " "libslurm.so" "/usr/bin/python3" "libc.so.6"; do
		has_said "$need.* is needed by"
	done
	is_installed gpu-leased && fail "half of it is installed"
	return 0
}

installed_as_packed() {
	rpm -V "${OURS[@]}" || fail "what is installed is not what was packed"
}

upgrade() {
	echo '# of the administrator' >>"$CONFIG"
	pretend_to_be_up
	rpm -U /rpms/next/*.rpm
	for package in "${OURS[@]}"; do
		[ "$(rpm_version "$package")" = $NEXT ] || fail "$package after the upgrade: $(rpm_version "$package")"
	done
	was_asked "daemon-reload"
	was_asked "try-restart gpu-leased-copies.service gpu-leased.service gpu-leased-metrics.service gpu-lease-placer.service"
	if grep -q disable $ASKED; then fail "an upgrade disables units: $(cat $ASKED)"; fi
	grep -q '^# of the administrator' "$CONFIG" || fail "an upgrade takes the administrator's file"
	[ "$(gpu-leasectl --version)" = $NEXT ] || fail "gpu-leasectl after the upgrade"
}

downgrade() {
	local known package
	said rpm -U /rpms/now/*.rpm && fail "rpm goes back without being told to"
	known=$(schema 99000)
	for package in "${OURS[@]}"; do
		said rpm -U --oldpackage --nodeps "/rpms/now/$package"-[0-9]*.rpm &&
			fail "$package goes back over a newer usage.db"
		has_said "usage.db has schema 99000, and this release knows $known"
		has_said "What to do: keep the newer release"
		[ "$(rpm_version "$package")" = $NEXT ] || fail "after the refusal: $(rpm_version "$package")"
	done
	rpm -V --nomtime --nomd5 --nosize "${OURS[@]}" || fail "a refused downgrade took files"
	# A minor step only adds, and the older release reads on.
	schema $((known + 1)) >/dev/null
	rpm -U --oldpackage /rpms/now/*.rpm || fail "an older release that can read usage.db is refused"
	schema "$known" >/dev/null
}

# slurm of another release and the plugin of this one do not go together.
slurm_upgrade() {
	local next
	next=$(rpm -q --qf '%{VERSION}' slurm | awk -F. '{printf "%s.%02d.1", $1, $2 + 6}')
	stands_in slurm "$next"
	said rpm -U "$SITE"/noarch/slurm-"$next"-*.rpm && fail "Slurm goes on without the plugin"
	has_said "is needed by (installed) slurm-spank-gpu-share"
	createrepo_c --quiet "$SITE"
	dnf --refresh upgrade || fail "dnf cannot decide"
	[ "$(rpm_version slurm)" != "$next" ] || fail "dnf upgraded Slurm alone"
	rm "$SITE"/noarch/slurm-"$next"-*.rpm
}

erase() {
	local status="{\"tenants\": [{\"job_id\": 4711}]}"
	mkdir -p /etc/slurm/plugstack.conf.d
	sed 's/^optional/required/' "$SHIPPED" >"$LINE"
	said rpm -e slurm-spank-gpu-share && fail "a plugin that Slurm requires was erased"
	has_said "take the line with gpu_share.so out of $LINE"
	is_installed slurm-spank-gpu-share || fail "it is not in the database any more"
	ln -sf "$SHIPPED" "$LINE"
	said rpm -e gpu-lease-shim && fail "the interposer was erased without its daemon"
	# A daemon that runs, with a job.
	touch /run/is-active
	mv /usr/bin/gpu-leasectl /usr/bin/gpu-leasectl.real
	printf '#!/bin/sh\necho %s\n' "'$status'" >/usr/bin/gpu-leasectl
	chmod 755 /usr/bin/gpu-leasectl
	said rpm -e gpu-leased && fail "the daemon was erased under a job"
	has_said "jobs share GPUs of this node: 4711"
	is_installed gpu-leased || fail "it is not in the database any more"
	mv /usr/bin/gpu-leasectl.real /usr/bin/gpu-leasectl
	rm /run/is-active
	: >$ASKED
	typed remove
	was_asked "disable --now gpu-leased.socket gpu-leased-admin.socket"
	[ ! -L "$LINE" ] || fail "the plugin is gone and its line is not"
	[ -e "$CONFIG.rpmsave" ] || fail "the administrator's file is gone"
	[ -e "$STORE" ] || fail "usage that slurmdbd may not have yet is gone"
	rm -r /etc/gpu-lease /var/lib/gpu-leased
	files >/tmp/after
	diff /tmp/before /tmp/after || fail "erasing left or took these"
}

step "rpm and dnf, and packages that stand in for the distribution's"
apt-get update -qq
apt-get install -y -qq --no-install-recommends rpm dnf createrepo-c procps systemd python3-minimal \
	python3-cffi-backend python3-rich python3-systemd slurm-wlm-basic-plugins slurm-client \
	'libpython3.[0-9]*[0-9]$' 'libslurm[0-9]*[0-9]$' >/dev/null
mkdir -p /etc/rpm /var/lib/rpm /etc/slurm/plugstack.conf.d
echo '%_dbpath /var/lib/rpm' >/etc/rpm/macros
make_repository
pretend_to_be_up
step "refused without what they depend on"
refused_without_dependencies
step "install with dnf, as docs/admin.md says"
typed install
typed remove
files >/tmp/before
typed install
starts_nothing
installed_as_packed
step "programs"
rpm -ql "${OURS[@]}" >/tmp/listed
programs_run "$(rpm_version gpu-leased)"
python_is_compiled
daemon_runs
step "upgrade"
upgrade
step "downgrade"
downgrade
step "an upgrade of Slurm"
slurm_upgrade
step "erase"
erase
step "all as it should be"
