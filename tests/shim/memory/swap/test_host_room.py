"""What a process' cgroups have room for, of both versions, from files that a test has written."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.emugpu.server import BUILD
from tests.support.machine import own_mounts_required

PROGRAM = BUILD.parent / "shim" / "memory" / "swap" / "host_room"
MIB = 1 << 20
NO_LIMIT = str(0x7FFFFFFFFFFFF000)  # as version 1 writes it
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2 = ("memory.max", "memory.current", "inactive_file")


def write(directory: Path, names: tuple[str, str, str], limit: str, used: int, files: int) -> None:
    """used, files: in MiB, the second part of the first."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / names[0]).write_text(f"{limit}\n")
    (directory / names[1]).write_text(f"{used * MIB}\n")
    (directory / "memory.stat").write_text(f"anon 5\n{names[2]} {files * MIB}\npgfault 7\n")


def room_for(tree: Path, *sizes: int, cgroup: Path | None = None) -> list[bool]:
    """Of so many MiB each, where /sys/fs/cgroup is the tree. cgroup: in place of its own file."""
    own_mounts_required()
    if not Path("/sys/fs/cgroup").is_dir():
        pytest.skip("there is no /sys/fs/cgroup here")
    script = 'mount --bind "$0" /sys/fs/cgroup && exec "$@"'
    if cgroup:
        script = f"mount --bind '{cgroup}' /proc/$$/cgroup && {script}"
    words = ["unshare", "--mount", "sh", "-c", script, str(tree), str(PROGRAM), *map(str, sizes)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [word == "1" for word in done.stdout.split()]


def own_cgroups() -> Mapping[str, str]:
    """Paths by controller; that of version 2 has none."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return {
        name: path
        for _, names, path in (li.split(":", 2) for li in lines)
        for name in names.split(",")
    }


def test_without_a_limit_there_is_room(tmp_path: Path) -> None:
    assert room_for(tmp_path, 1, 1 << 30) == [True, True]
    write(tmp_path / own_cgroups().get("", "/").lstrip("/"), V2, "max", 100, 0)
    assert room_for(tmp_path, 1 << 30) == [True]


@pytest.mark.parametrize(
    ("limit", "used", "files", "room"),
    [
        (800, 300, 100, 500),  # files can go; an eighth stays for the program
        (65536, 512, 0, 64000),  # of a large one 1 GiB
        (800, 800, 0, 0),
    ],
)
def test_some_of_a_cgroup_is_left_to_the_program(
    tmp_path: Path, limit: int, used: int, files: int, room: int
) -> None:
    path = own_cgroups().get("", "/").lstrip("/")
    write(tmp_path / path, V2, str(limit * MIB), used, files)
    assert room_for(tmp_path, room, room + 1) == [room > 0 or used < limit, False]


def test_all_above_it_count(tmp_path: Path) -> None:
    """Version 1: a step's cgroup lies in its job's."""
    cgroups = own_cgroups()
    path = cgroups.get("memory", "/").lstrip("/")
    if not path:
        pytest.skip("this process is in no memory cgroup of version 1 below the first")
    write(tmp_path / "memory" / path, V1, NO_LIMIT, 10, 0)
    above = (tmp_path / "memory" / path).parent
    write(above, V1, str(800 * MIB), 100, 0)
    assert room_for(tmp_path, 600, 601) == [True, False]
    write(tmp_path / "memory" / path, V1, str(80 * MIB), 10, 0)
    assert room_for(tmp_path, 60, 61) == [True, False]


@pytest.mark.parametrize(
    "lines",
    [
        "9:name=systemd:/x0::/bait\n4:memory:/\n0::/job\n",
        "12:name=x:memory:/bait\n11:cpu,memory:/\n0::/job\n",
        "0::/job\n",
        "9:name=systemd:/x\r0::/bait\n0::/job\n",
    ],
)
def test_names_of_cgroups_hide_none(tmp_path: Path, lines: str) -> None:
    write(tmp_path / "job", V2, str(800 * MIB), 100, 0)
    file = tmp_path / "cgroup"
    file.write_text(lines)
    assert room_for(tmp_path, 600, 601, cgroup=file) == [True, False]


def test_a_controller_that_shares_its_hierarchy(tmp_path: Path) -> None:
    write(tmp_path / "memory" / "job", V1, str(800 * MIB), 100, 0)
    file = tmp_path / "cgroup"
    file.write_text("10:cpuset:/x:memory:/other\n5:cpu,memory,pids:/job\n1:name=memory:/no\n")
    assert room_for(tmp_path, 600, 601, cgroup=file) == [True, False]
