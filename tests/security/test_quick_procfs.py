"""Whatever stands in /proc: nothing is taken for what a user has made it look like."""

from __future__ import annotations

import asyncio
import itertools
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leased.processes import procfs
from leased.processes.identity import ProcessId, ancestors, process_id
from leased.processes.process_inspector import ProcessInspector
from leased.processes.procfs import Cgroup
from leased.processes.stepds import Known
from leased.processes.stray import Process
from tests.support.fake_proc import process

# Where str.splitlines() or text mode would see the end of a line, and the kernel does not.
ENDS = ("\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
JOB_7 = "/system.slice/slurmstepd.scope/job_7/step_0"
JOB_7_V1 = "/slurm/uid_1000/job_7/step_0"
BAD_NAME = b"\xff\n) R 1 1"
KNOWN = Known(
    {5: (ProcessId(5, 75), 7)},
    frozenset({Cgroup(b"", b"/system.slice/slurmstepd.scope"), Cgroup(b"freezer", b"/slurm")}),
)


def described(pid: int, proc: Path) -> Process | None:
    return asyncio.run(ProcessInspector(False, proc).describe([pid], KNOWN)).get(pid)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("path", [f"0::{JOB_7}", f"4:freezer:{JOB_7_V1}"])
def test_no_name_of_a_cgroup_begins_a_line(tmp_path: Path, end: str, path: str) -> None:
    own = "/user.slice/user-1000.slice/user@1000.service/x"
    process(tmp_path, 5, cgroup=f"0::{JOB_7}\n".encode())
    for n, start in enumerate(("0::", "4:freezer:")):
        text = f"{start}{own}{end}{path}\n".encode()
        process(tmp_path, 10 + n, cgroup=text)
        assert KNOWN.step_of(10 + n, tmp_path) is None


@pytest.mark.parametrize(
    "text",
    [
        b"0::/x\xff\n",
        b"0::\n",
        b"no line of the kernel's\n0::" + JOB_7.encode() + b"\n",
        b"0::" + JOB_7.encode(),
        b"0::" + b"/x" * procfs.CGROUP_MOST + b"\n0::" + JOB_7.encode() + b"\n",
        b"0::" + JOB_7.replace("_7", "_" + "7" * 5000).encode() + b"\n",
        b"0::" + JOB_7.replace("_7", "_\u0667").encode() + b"\n",
        b"0::" + JOB_7.encode() + b"\xc2\x85\n",
        b"0::" + JOB_7.encode() + b"\r\n",
    ],
)
def test_a_malformed_cgroup_counts_as_none(tmp_path: Path, text: bytes) -> None:
    process(tmp_path, 10, cgroup=text)
    assert KNOWN.step_of(10, tmp_path) is None


@pytest.mark.parametrize("name", [b"\xff", BAD_NAME, b"a) Z 9 (", b"\r\x85", b""])
def test_any_name_of_a_process(tmp_path: Path, name: bytes) -> None:
    process(tmp_path, 5)
    process(tmp_path, 10, 5, name)
    assert procfs.stat(10, tmp_path) == procfs.Stat("S", 5, 80)
    assert process_id(10, tmp_path) == ProcessId(10, 80)
    assert ancestors(10, tmp_path) == [10, 5]
    found = described(10, tmp_path)
    assert found is not None
    assert found.uid == 1000
    assert found.command.isprintable()
    assert found.step is not None


@pytest.mark.parametrize("end", [*ENDS, "\n"])
def test_no_name_of_a_process_says_whose_it_is(tmp_path: Path, end: str) -> None:
    process(tmp_path, 10, name=f"a{end}Uid:\t0".encode())
    assert procfs.real_uid(10, tmp_path) == 1000


@pytest.mark.parametrize("end", ENDS)
def test_no_name_of_a_file_is_another_file(tmp_path: Path, end: str) -> None:
    line = f"7f00 r-xp 00 08:01 12 /tmp/x{end}/tmp/mylibgpulease.so\n".encode()
    process(tmp_path, 10, maps=line)
    assert procfs.maps_file(10, "libgpulease.so", tmp_path) is False
    line = f"7f00 r-xp 00 08:01 12 /opt/libgpulease.so{end}x\n".encode()
    process(tmp_path, 11, maps=line)
    assert procfs.maps_file(11, "libgpulease.so", tmp_path) is False


def test_maps_are_searched_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procfs, "MAPS_MOST", 1 << 22)
    line = b"7f00-7f01 r-xp 00 08:01 12 /tmp/" + b"n" * 4000 + b"\n"
    wanted = b"7f00-7f01 r-xp 00 08:01 12 /opt/libgpulease.so\n"
    process(tmp_path, 10, maps=line * 1000 + wanted)
    process(tmp_path, 11, maps=line * (procfs.MAPS_MOST // len(line) + 100) + wanted)
    process(tmp_path, 12, maps=b"x" * (procfs.MAPS_MOST + 100_000))
    tracemalloc.start()
    try:
        assert procfs.maps_file(10, "libgpulease.so", tmp_path) is True
        assert procfs.maps_file(11, "libgpulease.so", tmp_path) is None, "beyond the limit"
        assert procfs.maps_file(12, "libgpulease.so", tmp_path) is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_stands_across_two_reads(tmp_path: Path) -> None:
    wanted = b"7f00-7f01 r-xp 00 08:01 12 /opt/libgpulease.so\n"
    for n, short in enumerate(range(len(wanted) + 1)):
        text = b"y" * (procfs.CHUNK - short - 1) + b"\n" + wanted
        process(tmp_path, 10 + n, maps=text)
        assert procfs.maps_file(10 + n, "libgpulease.so", tmp_path) is True


READERS: tuple[Callable[[int, Path], Any], ...] = (
    procfs.stat,
    procfs.cgroups,
    procfs.real_uid,
    procfs.command,
    procfs.command_line,
    procfs.environment,
    lambda pid, proc: procfs.maps_file(pid, "libgpulease.so", proc),
    lambda pid, proc: procfs.has_open(pid, "/dev/nvidia", proc),
    ancestors,
    KNOWN.step_of,
    described,
)
FILES = ("stat", "status", "comm", "cgroup", "cmdline", "environ", "maps")
PIECES = (
    *(end.encode() for end in ENDS),
    *(b"\n", b"\xff", b"0::", JOB_7.encode(), b"Uid:\t0", b"/libgpulease.so"),
    *(b"1 (a) S 5 ", b"0 " * 18, b"9" * 5000),
)
numbers = itertools.count(100)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(FILES),
        st.one_of(
            st.binary(max_size=200),
            st.text(max_size=60).map(lambda text: text.encode(errors="surrogatepass")),
            st.lists(
                st.sampled_from(PIECES),
                max_size=12,
            ).map(b"".join),
        ),
    )
)
def test_no_content_raises(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    proc = tmp_path_factory.getbasetemp() / "proc"
    pid = next(numbers)
    place = process(proc, pid)
    for name, text in files.items():
        (place / name).write_bytes(text)
    for read in READERS:
        read(pid, proc)


def test_a_missing_file_or_something_else_in_its_place(tmp_path: Path) -> None:
    for pid in (10, 11):
        (tmp_path / str(pid)).mkdir()
    for file in FILES:
        (tmp_path / "11" / file).mkdir()
    (tmp_path / "11" / "fd").write_text("no directory")
    for read, pid in itertools.product(READERS, (9, 10, 11)):
        assert read(pid, tmp_path) in (None, [], [pid]), (read, pid)
    assert procfs.boot_id(tmp_path) is None


def test_this_very_process() -> None:
    pid = os.getpid()
    found = procfs.stat(pid)
    assert found is not None
    assert (found.state, found.parent) == ("R", os.getppid())
    assert procfs.real_uid(pid) == os.getuid()
    assert procfs.cgroups(pid)
    assert procfs.command(pid)
    assert procfs.command_line(pid)
    assert procfs.maps_file(pid, "no such file.so") is False
    libc = next(line for line in Path("/proc/self/maps").read_text().split("\n") if "libc" in line)
    assert procfs.maps_file(pid, libc.rpartition("/")[2]) is True
    with Path("/dev/zero").open():
        assert procfs.has_open(pid, "/dev/zer") is True
    assert procfs.has_open(pid, "/dev/nvidia-no") is False
    assert procfs.boot_id()
