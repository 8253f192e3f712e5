#!/usr/bin/env bash
# Build RPM packages into build/rpm, from what git tracks in this checkout (gpu-lease.spec).
# On Fedora and EL the spec's BuildRequires have to be there; elsewhere rpmbuild, meson and ninja are
# looked for, and the packages are for a machine with this one's Python and Slurm.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/source.sh

die() {
	printf 'rpm: %s\n' "$*" >&2
	exit 1
}

# A venv's tools are not those that the packages are built with.
SYSTEM_PATH=/usr/sbin:/usr/bin:/sbin:/bin
for needed in rpmbuild meson ninja; do
	PATH=$SYSTEM_PATH command -v "$needed" >/dev/null ||
		die "$needed is not installed: dnf install rpm-build meson, or apt-get install rpm meson"
done
version=$(release_version)
top=$PWD/build/rpm/top
source=build/rpm/source/gpu-lease-$version
mkdir -p "$top"/{SOURCES,SPECS} build/rpm/source
make_source "$source"

# The last schema that the store knows, and the protocol of the interposer.
schema=$(PYTHONPATH=$source python3 -B -c 'from leased.store.schema import VERSION; print(VERSION)')
wire=$(sed -n 's/^#define GL_VERSION //p' "$source/shim/base/wire_header.h")
# Before a file is replaced, also by a newer release, which knows all that it finds.
{
	sed "s/#VERSION#/$version/; s/#SCHEMA#/$schema/; s/#WIRE#/$wire/" packaging/older_release.sh
	# shellcheck disable=SC2016 # of the script
	echo 'if [ "$1" -gt 1 ]; then refuse_if_newer "release that is installed"; fi'
} | sed 's/%/%%/g' >"$top/SPECS/older_release.pre"
sed 's/%/%%/g' packaging/sharing_jobs.sh >"$top/SPECS/sharing_jobs.preun"
cp packaging/gpu-lease.spec "$top/SPECS/"

# The time of the last commit, so that the same sources make the same packages.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
tar -c --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
	-C build/rpm/source "gpu-lease-$version" | gzip -n >"$top/SOURCES/gpu-lease-$version.tar.gz"

# Where packages are not RPMs, there is no database in which requirements could be looked up, and
# nothing that makes packages of debugging symbols.
elsewhere=()
[ -e /etc/redhat-release ] ||
	elsewhere=(
		--nodeps --define "debug_package %{nil}" --define "install_options --strip"
		--define "map_build_directory 1"
	)
include=$(cuda_include)
(cd "$top/SPECS" && env -u PYTHONPATH PATH=$SYSTEM_PATH rpmbuild -bb "${elsewhere[@]}" \
	--define "_topdir $top" --define "release_version $version" --define "cuda_include $include" \
	--define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" \
	--define "packager gpu-lease maintainers <maintainers@gpu-lease.invalid>" \
	--define "_build_id_links none" --define "_buildhost localhost" gpu-lease.spec) \
	>build/rpm/build.log 2>&1 ||
	{ tail -40 build/rpm/build.log >&2; die "the build failed, see build/rpm/build.log"; }
rm -f build/rpm/*.rpm
mv "$top"/RPMS/*/*.rpm build/rpm/
ls build/rpm/*.rpm
