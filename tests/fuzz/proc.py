"""A /proc that users fill with whatever they may choose, and all that reads it.

Half of it is written as the kernel would write it: what users choose (names of processes,
cgroups and files) cannot change what the kernel says beside it. The other half is any bytes,
cut, huge or missing: then nothing may raise.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from leased.processes import procfs, slurm_cgroups
from leased.processes.identity import ProcessId, Step, alive, ancestors, process_id
from leased.processes.process_inspector import ProcessInspector
from leased.processes.procfs import Cgroup
from leased.processes.stepds import Stepds
from tests.fuzz.node import Broken
from tests.fuzz.reader import Reader

LIBRARY = "libgpulease.so"
FILES = ("stat", "status", "comm", "cgroup", "cmdline", "maps")
SCOPE = b"/system.slice/slurmstepd.scope"
SLUID = b"sEKNKTV3WPV500"
# What a line seems to end with, and what means something to a reader.
PIECES = (
    *(b"\r", b"\v", b"\f", b"\x1c", b"\x1d", b"\x1e", b"\x85", b"\xff", b"\xc2\x85"),
    *("\u2028".encode(), "\u2029".encode(), b" ", b"\t", b"(", b")", b":", b"0::", b"4:freezer:"),
    *(b"Uid:\t0", b"Uid:\t0\t0\t0\t0", b") R 1 ", b"0 " * 18, b"7" * 30, b"job_7", b"step_0"),
    *(b"slurmstepd.scope", b"/libgpulease.so", b" (deleted)", b"slurmstepd: [7.0]", b"\\n", SLUID),
)
NUMBERS = (0, 1, 2, 5, 6, 9, 10, 77, 2**22, 2**31 - 1, 2**32 - 1, 2**63)
JOBS = {2: 7, 3: 8, 4: 9}  # of slurmstepds, by pid
HOMES = (
    [Cgroup(b"freezer", b"/slurm/uid_0/job_7"), Cgroup(b"", b"/system.slice/slurmd.service")],
    [Cgroup(b"freezer", b"/"), Cgroup(b"", SCOPE + b"/job_8/step_0/slurm")],
    [Cgroup(b"freezer", b"/"), Cgroup(b"", SCOPE + b"/" + SLUID + b"/step_0/slurm")],
)
PIDS = range(2, 10)


class Memory:
    """The store's part in slurmstepds."""

    def stepds(self) -> dict[int, tuple[ProcessId, int]]:
        return {}

    def add_stepd(self, process: ProcessId, job_id: int) -> None:
        pass

    def forget_stepd(self, pid: int) -> None:
        pass


def text(r: Reader, stop: bytes = b"\n\0") -> bytes:
    """What a user has chosen: anything but the bytes that the kernel keeps out."""
    made = b"".join(
        r.pick(PIECES) if r.byte() & 3 else r.bytes(r.byte() % 6) for _ in range(r.byte() % 6)
    )
    return bytes(byte for byte in made if byte not in stop)


class Truth:
    """What the kernel knows of a process, whatever it is called."""

    def __init__(self, r: Reader, pid: int):
        self.pid = pid
        self.name = text(r)[:15]
        self.parent = 1 if pid in JOBS else 1 + r.byte() % (pid - 1)
        self.start = int(r.pick(NUMBERS))
        self.uid = int(r.pick(NUMBERS[:-1]))
        self.library = bool(r.byte() & 1)
        self.step: Step | None = None  # by cgroup
        self.cgroups = HOMES[pid - 2] if pid in JOBS else self._cgroups(r)
        self.maps = [text(r) for _ in range(r.byte() % 4)]

    def _cgroups(self, r: Reader) -> list[Cgroup]:
        """Somewhere: in a job below a place of Slurm's, or below what a user was given."""
        n, step = r.byte(), b"%d" % (r.byte() % 3)
        below = b"/".join(part for part in (text(r, b"\n\0/") for _ in range(n % 3)) if part)
        own = b"/user.slice/user-1000.slice/user@1000.service"
        freezer, unified = b"/", own + b"/" + below
        if n % 5 == 0:
            freezer = b"/slurm/uid_0/job_7/step_%s/%s" % (step, below)
            self.step = Step(7, step.decode())
        elif n % 5 == 1:
            number = int(r.pick((8, 9, 10)))  # of the last no slurmstepd has registered
            unified = SCOPE + b"/job_%d/step_%s/%s" % (number, step, below)
            self.step = Step(number, step.decode())
        elif n % 5 == 2:
            unified = SCOPE + b"/" + SLUID + b"/step_%s/user/%s" % (step, below)
            self.step = Step(9, step.decode())
        elif n % 5 == 3:  # a name like Slurm's where it is none
            unified = own + text(r, b"\n\0/") + SCOPE + b"/job_7/step_0"
        return [Cgroup(b"freezer", freezer), Cgroup(b"", unified)]

    def write(self, proc: Path) -> None:
        place = proc / str(self.pid)
        (place / "fd").mkdir(parents=True, exist_ok=True)
        escaped = self.name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n")
        fields = b" ".join([b"S", b"%d" % self.parent, *[b"-1"] * 17, b"%d" % self.start, b"0"])
        own = [b"/opt/libgpulease.so"] if self.library else []
        lines = [b"7f00 r-xp 00 08:01 12 " + name for name in (b"/bin/x", *self.maps, *own)]
        cgroups = [b"%d:%s:%s" % (9 - n, c.controllers, c.path) for n, c in enumerate(self.cgroups)]
        for name, data in {
            "stat": b"%d (%s) %s\n" % (self.pid, self.name, fields),
            "status": b"Name:\t%s\nUid:\t%d\t0\t0\t0\nGid:\t0\n" % (escaped, self.uid),
            "comm": self.name + b"\n",
            "cgroup": b"\n".join(cgroups) + b"\n",
            "cmdline": self.name,
            "maps": b"\n".join(lines) + b"\n",
        }.items():
            (place / name).write_bytes(data)

    def has_library(self) -> bool:
        names = (name.removesuffix(b" (deleted)") for name in self.maps)
        return self.library or any(name.endswith(b"/" + LIBRARY.encode()) for name in names)


def check(proc: Path, stepds: Stepds, truths: dict[int, Truth]) -> None:
    """What is read is what the kernel knows."""
    known = stepds.known()
    witness = ProcessInspector(False, proc)
    witness.interposer = LIBRARY
    described = asyncio.run(witness.describe(truths, known))
    for pid, truth in truths.items():
        if procfs.stat(pid, proc) != procfs.Stat("S", truth.parent, truth.start):
            raise Broken(f"another stat of process {pid}: {procfs.stat(pid, proc)}")
        if procfs.cgroups(pid, proc) != tuple(truth.cgroups):
            raise Broken(f"other cgroups of process {pid}: {procfs.cgroups(pid, proc)}")
        chain = [pid]
        while truths[chain[-1]].parent > 1:
            chain.append(truths[chain[-1]].parent)
        above = [JOBS[ancestor] for ancestor in chain if ancestor in JOBS]
        by_cgroup = truth.step.job if truth.step else None
        job = by_cgroup if by_cgroup in JOBS.values() or not above else above[0]
        step = known.step_of(pid, proc)
        if (step.job if step else None) != job:
            raise Broken(f"process {pid} in {truth.cgroups} below {chain} is of {step}")
        process = described[pid]
        if (process.uid, process.start) != (truth.uid, truth.start):
            raise Broken(f"process {pid} is taken for {process}, it is of uid {truth.uid}")
        if not process.command.isascii() or not process.command.isprintable():
            raise Broken(f"a name for terminals: {process.command!r}")
        if process.interposed != truth.has_library():
            raise Broken(f"process {pid} has {truth.maps}, and interposed is {process.interposed}")


def spoil(r: Reader, proc: Path) -> None:
    """Any bytes, a part, very many, or no file at all."""
    path = proc / str(r.byte() % (PIDS.stop + 1)) / str(r.pick(FILES))
    n = r.byte() % 6
    if path.is_file():
        data = path.read_bytes()
        if n == 0:
            path.unlink()
        elif n == 1:
            path.write_bytes(data[: r.byte()])
        elif n == 2:
            path.write_bytes(data * (r.byte() * 16))
        elif n == 3:
            at = r.byte()
            path.write_bytes(data[:at] + text(r, b"") + data[at:])
        elif n == 4:
            path.write_bytes(text(r, b"") + b"\n" + text(r, b""))
        else:
            path.write_bytes(r.bytes(r.byte()))


def read_all(proc: Path, stepds: Stepds) -> int:
    """Everything that reads, of every process. Nothing raises."""
    pids = range(PIDS.stop + 1)
    known = stepds.known()
    witness = ProcessInspector(True, proc)
    witness.interposer = LIBRARY
    asyncio.run(witness.describe(pids, known))
    for pid in pids:
        process = process_id(pid, proc)
        if process is not None:
            alive(process, proc)
        ancestors(pid, proc)
        found = procfs.cgroups(pid, proc) or ()
        slurm_cgroups.looks_like(found)
        slurm_cgroups.homes_of(found, 7)
        stepds.job_of(pid)
        stepds.register(pid, 7 + pid % 3)
    procfs.boot_id(proc)
    return len(pids)


def proc_target(data: bytes, proc: Path) -> int:
    """Processes of users and of Slurm's in a /proc, sound at first."""
    r = Reader(data)
    truths = {pid: Truth(r, pid) for pid in PIDS}
    for truth in truths.values():
        truth.write(proc)
    stepds = Stepds(Memory(), proc)
    for pid, job in JOBS.items():
        stepds.register(pid, job)
    check(proc, stepds, truths)
    done = len(truths)
    while r.left > 0 and done < 200:
        spoil(r, proc)
        done += read_all(proc, stepds)
    return done
