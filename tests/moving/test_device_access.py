"""A job's device files under ConstrainDevices=yes: a real cgroup v2 and real programs, as
Slurm attaches them. /dev/full stands for the GPU's file."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leased.base.errors import Refused
from leased.moving import bpf
from leased.moving.device_access import DeviceAccess
from leased.moving.device_program import INSN, CharDevice, can_be_loaded, split, widened
from leased.processes import procfs
from leased.processes.procfs import Cgroup
from leased.processes.stepds import Stepds

NULL, ZERO, FULL, RANDOM = 3, 5, 7, 8  # minors of the major number 1
OPENS = "import sys\nfor name in sys.stdin:\n try: open(name.strip()); print('open', flush=True)\n"
OPENS += " except OSError as fault: print(fault.errno, flush=True)\n"


def slurms(*minors: int) -> bytes:
    """What Slurm makes: each of its devices is let pass, nothing else."""
    insns = [(0x61, 0x12, 0, 0), (0x54, 2, 0, 0xFFFF), (0x61, 0x13, 0, 0), (0x74, 3, 0, 16)]
    insns += [(0x61, 0x14, 4, 0), (0x61, 0x15, 8, 0)]
    for minor in minors:
        insns += [(0x55, 2, 4, 2), (0x55, 4, 3, 1), (0x55, 5, 2, minor), (0xB7, 0, 0, 1)]
        insns += [(0x95, 0, 0, 0)]
    return b"".join(INSN.pack(*insn) for insn in [*insns, (0xB7, 0, 0, 0), (0x95, 0, 0, 0)])


def root_of_v2() -> Path | None:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(where)
    return None


class NoStepds:
    """A store that remembers no slurmstepd."""

    def stepds(self) -> dict[int, object]:
        return {}


class Cgroups:
    """job_7 of a slurmstepd.scope, with a step in which a process opens what it is told."""

    def __init__(self, root: Path):
        self.root = root
        self.own = procfs.cgroups(os.getpid()) or ()
        (v2,) = (c.path for c in self.own if c.controllers == b"")
        self.scope = root / v2.decode().lstrip("/") / f"gpu-lease-test-{os.getpid()}"
        self.job = self.scope / "job_7"
        self.task = self.job / "step_0" / "user" / "task_0"
        self.task.mkdir(parents=True)
        self.process = subprocess.Popen(
            [sys.executable, "-c", OPENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        (self.task / "cgroup.procs").write_text(str(self.process.pid))
        self.full = FULL
        self.access = self.new_access()

    def new_access(self) -> DeviceAccess:
        scope = Cgroup(b"", b"/" + str(self.scope.relative_to(self.root)).encode())
        names = {FULL: "full", RANDOM: "random"}
        stepds = Stepds(NoStepds())  # type: ignore[arg-type]
        stepds.scopes = frozenset({scope})
        return DeviceAccess(
            lambda: True,
            stepds,
            self.root,
            lambda minor: Path("/dev", names[minor]),
        )

    def opens(self, name: str) -> bool:
        assert self.process.stdin
        assert self.process.stdout
        print(f"/dev/{name}", file=self.process.stdin, flush=True)
        return self.process.stdout.readline() == "open\n"

    def what_opens(self) -> list[str]:
        return [name for name in ("null", "zero", "full", "random") if self.opens(name)]

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        for folder in (self.task, *list(self.task.parents)[:4]):
            with contextlib.suppress(OSError):
                folder.rmdir()


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    root = root_of_v2()
    if root is None or os.geteuid():
        pytest.skip("this takes root and a mounted cgroup v2")
    try:
        made = Cgroups(root)
    except OSError as fault:
        pytest.skip(f"no cgroup can be made here: {fault}")
    try:
        try:
            bpf.attach(made.job, slurms(NULL, ZERO), 1)
        except OSError as fault:
            pytest.skip(f"the kernel attaches no program for devices here: {fault}")
        yield made
    finally:
        made.end()


@pytest.mark.parametrize("at", ["job", "task"])
def test_a_job_opens_the_file_for_as_long_as_it_is_there(cgroups: Cgroups, at: str) -> None:
    """Slurm's program is the job's, which steps may override, or also the task's."""
    place = getattr(cgroups, at)
    if at == "task":
        bpf.attach(place, slurms(NULL, ZERO), 0)
    pids = [cgroups.process.pid]
    before = bpf.attached(place)
    assert cgroups.what_opens() == ["null", "zero"]
    cgroups.access.check(pids, FULL)
    cgroups.access.widen(pids, FULL)
    assert cgroups.what_opens() == ["null", "zero", "full"]
    cgroups.access.widen(pids, RANDOM)
    assert cgroups.what_opens() == ["null", "zero", "full", "random"]
    # Another daemon, which knows nothing of that.
    cgroups.new_access().settle(pids, [RANDOM])
    assert cgroups.what_opens() == ["null", "zero", "random"]
    cgroups.new_access().sweep(lambda job: [RANDOM] if job == 7 else [])
    assert cgroups.what_opens() == ["null", "zero", "random"]
    cgroups.new_access().sweep(lambda _: [])
    assert cgroups.what_opens() == ["null", "zero"]
    assert bpf.attached(place) == before


def test_what_is_not_the_jobs_own_is_not_touched(cgroups: Cgroups) -> None:
    with pytest.raises(Refused, match="in no cgroup v2 of Slurm's"):
        cgroups.access.widen([os.getpid()], FULL)


def test_a_job_without_a_program_is_refused(cgroups: Cgroups) -> None:
    other = cgroups.scope / "job_8" / "step_0"
    other.mkdir(parents=True)
    (other / "cgroup.procs").write_text(str(cgroups.process.pid))
    try:
        with pytest.raises(Refused, match="no cgroup of the job"):
            cgroups.access.check([cgroups.process.pid], FULL)
    finally:
        (cgroups.task / "cgroup.procs").write_text(str(cgroups.process.pid))
        other.rmdir()
        other.parent.rmdir()


def test_a_program_is_widened_and_narrowed_to_what_it_was() -> None:
    program, gpus = slurms(NULL), [CharDevice(195, n) for n in (0, 3)]
    assert split(widened(program, gpus)) == (gpus, program)
    assert widened(widened(program, gpus), gpus[:1]) == widened(program, gpus[:1])
    assert widened(widened(program, gpus), []) == program
    assert can_be_loaded(program)
    assert not can_be_loaded(program + INSN.pack(0x85, 0, 0, 12))
