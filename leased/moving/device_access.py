"""Which device files a job's processes may open, where Slurm constrains them (cgroup v2).

Slurm attaches a BPF program to the cgroups of a job and of its steps. The one that is nearest to a
process counts. It is replaced by the same program with the file of the GPU to which the job moves
besides (device_program.py), for as long as the job is there, since the driver opens that file again
and again; nothing else is touched, and nothing of it has to be remembered.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

from leased.base.errors import Refused
from leased.moving import bpf
from leased.moving.device_program import CharDevice, can_be_loaded, split, widened
from leased.processes import procfs
from leased.processes.procfs import Cgroup
from leased.processes.stepds import Stepds

ROOT = Path("/sys/fs/cgroup")
REMEDY = "docs/moving.md says what it needs under ConstrainDevices=yes"


class DeviceAccess:
    """constrained: whether Slurm constrains devices. jobs: where Slurm has put them. root: of
    cgroup v2."""

    def __init__(
        self,
        constrained: Callable[[], bool],
        jobs: Stepds,
        root: Path = ROOT,
        file: Callable[[int], Path] = lambda minor: Path(f"/dev/nvidia{minor}"),
    ):
        self._constrained = constrained
        self._jobs = jobs
        self._root = root
        self._file = file

    def check(self, pids: Iterable[int], minor: int) -> None:
        """Refused: these processes cannot be given the GPU of that device file."""
        if self._constrained():
            try:
                self._device(minor)
                self._programs(pids)
            except OSError as fault:
                raise self._refusal(fault) from None

    def widen(self, pids: Iterable[int], minor: int) -> None:
        """Let these processes open it. Refused: they cannot be let."""
        if self._constrained():
            try:
                self._set(pids, lambda have: {*have, self._device(minor)})
            except OSError as fault:
                raise self._refusal(fault) from None

    def settle(self, pids: Iterable[int], minors: Collection[int]) -> None:
        """Of what these processes were given beside what Slurm allows, leave them these GPUs.
        OSError: it could not be done."""
        if self._constrained():
            kept = {self._device(minor) for minor in minors}
            self._set(pids, lambda have: kept & set(have))

    def sweep(self, minors: Callable[[int], Collection[int]]) -> None:
        """Leave each job only the GPUs on which it is, of what it was given; `minors` of those.
        OSError: it could not be done."""
        for scope in self._jobs.scopes if self._constrained() else ():
            top = self._root / os.fsdecode(scope.path.lstrip(b"/"))
            for folder, _, _ in os.walk(top) if scope.controllers == b"" else ():
                path = b"/" + os.fsencode(Path(folder).relative_to(self._root))
                job = self._jobs.job_of_cgroup(Cgroup(b"", path))
                if job is not None:
                    self._sweep(Path(folder), {self._device(minor) for minor in minors(job)})

    def _sweep(self, cgroup: Path, kept: Collection[CharDevice]) -> None:
        with suppress(FileNotFoundError):  # the job has ended meanwhile
            program = bpf.attached(cgroup)
            devices = split(program.insns)[0] if program else []
            if program is not None and not set(devices) <= set(kept):
                bpf.attach(cgroup, widened(program.insns, set(devices) & set(kept)), program.flags)

    def _set(
        self,
        pids: Iterable[int],
        choose: Callable[[Collection[CharDevice]], Collection[CharDevice]],
    ) -> None:
        for cgroup, program in self._programs(pids).items():
            have = split(program.insns)[0]
            wanted = choose(have)
            if set(wanted) != set(have):
                bpf.attach(cgroup, widened(program.insns, wanted), program.flags)

    def _device(self, minor: int) -> CharDevice:
        found = self._file(minor).stat()
        if not stat.S_ISCHR(found.st_mode):
            raise OSError(errno.ENODEV, f"{self._file(minor)} is no device")
        return CharDevice(os.major(found.st_rdev), os.minor(found.st_rdev))

    def _programs(self, pids: Iterable[int]) -> dict[Path, bpf.Attached]:
        """By cgroup, those that count for these processes; of a process that has ended, none.
        OSError: it is not the job's own cgroup, or none of Slurm's programs."""
        places = (self._places(pid) for pid in pids)
        found = dict(self._nearest(*place) for place in places if place is not None)
        for cgroup, program in found.items():
            if not can_be_loaded(program.insns):
                raise OSError(errno.EOPNOTSUPP, f"the program of {cgroup} is none of Slurm's kind")
        return found

    def _places(self, pid: int) -> tuple[bytes, bytes] | None:
        """The cgroups of the process and of its job; None: it has ended."""
        of_v2 = (where.path for where in procfs.cgroups(pid) or () if where.controllers == b"")
        path = next(of_v2, None)
        if path is None:
            return None
        place = self._jobs.place_of(pid)
        if place is None or place.cgroup.controllers != b"":
            raise OSError(errno.EOPNOTSUPP, f"process {pid} is in no cgroup v2 of Slurm's")
        return path, place.cgroup.path

    def _nearest(self, path: bytes, job: bytes) -> tuple[Path, bpf.Attached]:
        at = path
        while at.startswith(job):
            cgroup = self._root / os.fsdecode(at.lstrip(b"/"))
            program = bpf.attached(cgroup)
            if program is not None:
                return cgroup, program
            at = at[: at.rindex(b"/")]
        raise OSError(
            errno.ENOENT, f"no cgroup of the job, up to {os.fsdecode(job)}, has a program"
        )

    @staticmethod
    def _refusal(fault: OSError) -> Refused:
        return Refused(
            "Slurm keeps jobs to the device files of their GPUs (ConstrainDevices), and gpu-leased "
            f"cannot change that: {fault.strerror}",
            REMEDY,
        )
