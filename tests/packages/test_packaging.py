"""What the packages say of us is so: files, versions, dependencies and units."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from datetime import datetime
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from leased import __version__
from leased.base import toml_file
from tests.conftest import ROOT

DEBIAN = ROOT / "packaging" / "debian"
SPEC = ROOT / "packaging" / "gpu-lease.spec"
PLACES = {
    "%{_bindir}": "usr/bin",
    "%{_datadir}": "usr/share",
    "%{_includedir}": "usr/include",
    "%{_libdir}/slurm": "usr/lib/*/slurm-wlm",
    "%{_mandir}": "usr/share/man",
    "%{_sbindir}": "usr/sbin",
    "%{_unitdir}": "usr/lib/systemd/system",
    "%{private}": "usr/lib/gpu-lease",
}
Patterns = Callable[[str], list[str]]
PACKAGES = ("gpu-leased", "gpu-lease-shim", "slurm-spank-gpu-share")
# What Debian calls those that pip knows by another name. None: it has no package, and we bring it.
CALLED = {
    "cffi": "python3-cffi-backend",
    "matplotlib": "python3-matplotlib",
    "nvidia-ml-py": None,
    "prometheus-client": "python3-prometheus-client",
    "rich": "python3-rich",
    "scipy": "python3-scipy",
    "systemd-python": "python3-systemd",
}


MESON = str(Path(sys.executable).parent / "meson")


def installed(build: str | Path = "build/meson") -> list[str]:
    """Where meson puts files and directories, without the first slash."""
    said = subprocess.run(
        [MESON, "introspect", "--installed", build],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return sorted({place.lstrip("/") for place in json.loads(said).values()})


def of_debian(package: str) -> list[str]:
    """Patterns of a package's files."""
    lines = (DEBIAN / f"{package}.install").read_text().splitlines()
    # debian/rules installs them, from where systemd of the machine has them.
    units = ["usr/lib/systemd/system"] if package == "gpu-leased" else []
    return [line.split()[0] for line in lines] + units


def of_rpm(package: str) -> list[str]:
    """The same of the spec, in Debian's places: its macros stand for them."""
    found = re.search(
        rf"^%files -n {package}\n(.*?)\n\n", SPEC.read_text(), re.MULTILINE | re.DOTALL
    )
    assert found
    lines = [line for line in found[1].splitlines() if line.startswith("%{")]
    for macro, place in PLACES.items():
        lines = [line.replace(macro, place) for line in lines]
    assert "%" not in "".join(lines), lines
    return [line.removesuffix(".gz") for line in lines]


def owners(place: str, patterns: Patterns = of_debian) -> list[str]:
    """The packages that a file or directory is in, alone or with the directory it is below."""
    above = [place, *(str(parent) for parent in Path(place).parents)]
    return [
        package
        for package in PACKAGES
        if any(fnmatchcase(part, pattern) for part in above for pattern in patterns(package))
    ]


def fields(package: str) -> dict[str, str]:
    """The fields of a package in debian/control, each in one line."""
    text = (DEBIAN / "control").read_text().replace("\n ", " ")
    found = re.search(rf"^Package: {package}$.*?(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found
    return dict(re.findall(r"^([\w-]+): *(.*)$", found[0], re.MULTILINE))


@pytest.mark.parametrize("patterns", [of_debian, of_rpm])
def test_every_installed_file_is_in_one_package(patterns: Patterns) -> None:
    places = installed()
    assert len(places) > 30
    found = {place: owners(place, patterns) for place in places}
    assert {place: packages for place, packages in found.items() if len(packages) != 1} == {}


def test_the_plugin_is_put_where_slurm_looks_on_a_machine_without_dpkg_dev(tmp_path: Path) -> None:
    """There meson's libdir is lib64, as long as there is one."""
    [include] = [word for word in options() if word.startswith("-Ddriver_include=")]
    command = [MESON, "setup", str(tmp_path), "--libdir=lib64", "-Dtests=false", include]
    with_ninja = f"{Path(MESON).parent}:{os.environ['PATH']}"
    env = os.environ | {"PATH": with_ninja}
    subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True)
    [ours] = [place for place in installed(tmp_path) if place.endswith("/gpu_share.so")]
    [slurms] = Path("/usr").glob("lib*/**/select_cons_tres.so")
    assert Path("/", ours).parent == slurms.parent


def options() -> list[str]:
    """With which build/meson is configured, as they are typed."""
    said = (ROOT / "build/meson/meson-private/cmd_line.txt").read_text()
    given = configparser.ConfigParser(interpolation=None)
    given.read_string(said)
    return [f"-D{name}={value}" for name, value in given["options"].items()]


@pytest.mark.parametrize("patterns", [of_debian, of_rpm])
def test_a_file_in_no_package_is_noticed(patterns: Patterns) -> None:
    assert owners("usr/bin/gpu-leasewatch", patterns) == []
    assert owners("usr/lib/gpu-lease/python/leased/core/arbiter.py", patterns) == ["gpu-leased"]


def test_the_packages_have_our_version() -> None:
    first = (DEBIAN / "changelog").read_text().splitlines()[0]
    assert first.startswith(f"gpu-lease ({__version__}) ")


def releases(changes: str) -> list[tuple[str, str]]:
    """Versions of CHANGELOG.md, each with its date, newest first."""
    return re.findall(r"^## (\S+) \((\S+)\)$", changes, re.MULTILINE)


def undated(changes: str, debian: str, spec: str) -> str:
    """What keeps packages from saying when their release was made; "": nothing does."""
    (version, date), *older = releases(changes)
    if version != __version__:
        return f"CHANGELOG.md begins with {version}"
    if not all(re.fullmatch(r"\d{4}-\d\d-\d\d", said) for _, said in older):
        return "an older release has no date"
    said = re.search(r"^ -- .*>  (.*)$", debian, re.MULTILINE)
    listed = re.search(r"^%changelog\n\* (\w+ \w+ +\d+ \d+) ", spec, re.MULTILINE)
    assert said
    assert listed
    made = (
        parsedate_to_datetime(said[1]).strftime("%Y-%m-%d"),
        datetime.strptime(listed[1], "%a %b %d %Y").strftime("%Y-%m-%d"),
    )
    wanted = made[0] if date == "unreleased" else date
    return "" if made == (wanted, wanted) else f"{version} is of {date}, its packages of {made}"


def test_packages_are_of_the_date_of_their_release() -> None:
    changes, debian = (ROOT / "CHANGELOG.md").read_text(), (DEBIAN / "changelog").read_text()
    assert undated(changes, debian, SPEC.read_text()) == ""
    (version, date), *_ = releases(changes)
    later = changes.replace(f"## {version} ({date})", f"## {version} (2099-01-02)")
    assert "is of 2099-01-02" in undated(later, debian, SPEC.read_text())


def test_the_newest_release_is_told_in_a_screen() -> None:
    """With its title, before what is to be done and the details."""
    changes = (ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## .*?(?=^###? )", changes, re.MULTILINE | re.DOTALL)
    assert newest
    told = [textwrap.wrap(line, 80) for line in newest[0].splitlines()]
    lines = [part for wrapped in told for part in wrapped or [""]]
    assert 10 < len(lines) <= 23, lines


@pytest.mark.parametrize(
    ("extra", "field"),
    [("", "Depends"), ("metrics", "Recommends"), ("plot", "Suggests"), ("matching", "Suggests")],
)
def test_a_package_depends_on_what_python_does(extra: str, field: str) -> None:
    project = toml_file.parse((ROOT / "pyproject.toml").read_bytes())["project"]
    wanted = project["optional-dependencies"][extra] if extra else project["dependencies"]
    said = fields("gpu-leased")[field]
    for one in wanted:
        need, _, only = one.partition(";")
        name, _, version = need.partition(">=")
        if only:  # Debian's Pythons are newer
            assert f"Requires: (python3-{name} >= {version} if python3 < 3.11)" in SPEC.read_text()
            continue
        package = CALLED[name]
        if package is None:
            assert "usr/lib/gpu-lease/python/pynvml.py" in of_debian("gpu-leased")
        else:
            assert f"{package} (>= {version})" in said


def script(name: str) -> str:
    """Of Debian's package of the daemon."""
    return (DEBIAN / f"gpu-leased.{name}").read_text()


def scriptlet(name: str) -> str:
    """The same of the RPM."""
    text = SPEC.read_text().partition(f"\n%{name} -n gpu-leased\n")[2]
    return text.partition("\n\n%")[0]


@pytest.mark.parametrize(
    ("before_removal", "after_upgrade"),
    [(script("prerm"), script("postinst")), (scriptlet("preun"), scriptlet("posttrans"))],
    ids=["deb", "rpm"],
)
def test_the_scripts_know_every_unit(before_removal: str, after_upgrade: str) -> None:
    units = {Path(place).name for place in installed() if place.startswith("usr/lib/systemd/")}
    assert len(units) == 7
    stopped = set(re.findall(r"gpu-lease[\w-]*\.(?:socket|service)", before_removal))
    again = set(re.findall(r"gpu-lease[\w-]*\.(?:socket|service)", after_upgrade))
    assert stopped == units
    assert again == {unit for unit in units if unit.endswith(".service")}


def test_the_plugin_s_line_is_where_its_package_looks_for_it() -> None:
    place = "usr/share/gpu-lease/slurm-conf/plugstack.conf.d/gpu-lease.conf"
    assert place in installed()
    assert f"ours=/{place}\n" in (DEBIAN / "slurm-spank-gpu-share.prerm").read_text()
    assert f"/{place} " in (ROOT / "README.md").read_text()
