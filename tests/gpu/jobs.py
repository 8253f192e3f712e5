"""Programs of the checks on a real GPU: run bare or as jobs of the daemon, and reported."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from leased.api.client import ask
from tests.copies.keeper import Keeper
from tests.slurm.leased import Leased
from tests.support import tenant
from tests.support.together import zip_strict
from tests.support.work_dir import work_dir

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 240.0
TAIL = 3000
INTERPOSER = "gpu-lease["  # how its complaints start


def on_gpu(gpu: int) -> dict[str, str]:
    """The environment of a program that shall see this one alone."""
    return {"CUDA_VISIBLE_DEVICES": str(gpu)}


ONE_GPU = on_gpu(0)


class JobFailed(RuntimeError):
    """A program failed or was late; the text has the end of what it printed."""


def python(*arguments: str) -> list[str]:
    """A command line for this Python."""
    return [sys.executable, *arguments]


def framework_python(*arguments: str) -> list[str]:
    """A command line for the Python that has PyTorch and the like: FRAMEWORK_PYTHON, or this."""
    return [os.environ.get("FRAMEWORK_PYTHON") or sys.executable, *arguments]


def readable(path: Path) -> Path:
    """The path from the root on. SystemExit: it cannot be read."""
    if not os.access(path, os.R_OK):
        raise SystemExit(f"cannot read {path}: name the directory that has it")
    return path.absolute()


@dataclass
class Job:
    """A running program in a process group of its own. Its output is in files: it never waits."""

    name: str
    process: subprocess.Popen[str]
    out: IO[str]
    err: IO[str]
    number: int = 0  # of the daemon's job, 0: none
    started: float = field(default_factory=time.monotonic)

    @classmethod
    def start(
        cls,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        number: int = 0,
    ) -> Job:
        """env: on top of this process's environment."""
        out, err = (tempfile.TemporaryFile("w+") for _ in range(2))  # noqa: SIM115
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | dict(env or {}),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            text=True,
            start_new_session=True,
        )
        return cls(name, process, out, err, number)

    def _tail(self, file: IO[str]) -> str:
        # Not through the object's position: the program writes through the same one.
        data = os.pread(file.fileno(), 1 << 20, max(0, os.fstat(file.fileno()).st_size - TAIL))
        return data.decode(errors="replace")

    def printed(self) -> str:
        """All that it has written on its standard output."""
        return os.pread(self.out.fileno(), 1 << 24, 0).decode(errors="replace")

    def said(self) -> str:
        """All that it has written on its standard error."""
        return os.pread(self.err.fileno(), 1 << 24, 0).decode(errors="replace")

    def failed(self, why: str) -> JobFailed:
        """The error to raise, after the end of the whole process group: what it printed last, what
        its own words were before the interposer's, and where its threads were if it ran."""
        where = self._threads()
        self.stop()
        lines = self.said().splitlines()
        own = [line for line in lines if not line.startswith(INTERPOSER)]
        ours = [line for line in lines if line.startswith(INTERPOSER)]
        texts = [self._tail(self.out), "\n".join(own)[-TAIL:], "\n".join(ours)[-TAIL:], where]
        return JobFailed(f"{self.name} {why}:\n" + "\n".join(text for text in texts if text))

    def _threads(self) -> str:
        """In which system call each thread of its process group is."""
        rows = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.getpgid(int(process.name)) != self.process.pid:
                    continue
                for thread in (process / "task").iterdir():
                    call = (thread / "syscall").read_text().split()[0]
                    kernel = (thread / "wchan").read_text()
                    rows.append(f"thread {thread.name}: system call {call}, {kernel}")
        return "\n".join(rows)

    def stop(self) -> None:
        """End the program and what it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def check_running(self) -> None:
        """JobFailed: it has ended."""
        if self.process.poll() is not None:
            raise self.failed(f"ended ({self.process.returncode}) too early")

    def wait_ready(self, timeout: float = TIMEOUT_S) -> None:
        """Return when the program has printed `ready`; it then waits for go()."""
        end = time.monotonic() + timeout
        while "ready\n" not in self._tail(self.out):
            if self.process.poll() is not None:
                raise self.failed(f"ended ({self.process.returncode}) before it was ready")
            if time.monotonic() > end:
                raise self.failed(f"was not ready after {timeout:g} s")
            time.sleep(0.01)

    def next_line(self, after: int, timeout: float = TIMEOUT_S) -> tuple[str, int]:
        """The first whole line behind so many bytes of its output, and where it ends."""
        end = time.monotonic() + timeout
        while True:
            data = os.pread(self.out.fileno(), 1 << 20, after)
            if b"\n" in data:
                line = data[: data.index(b"\n") + 1]
                return line.decode().strip(), after + len(line)
            if self.process.poll() is not None or time.monotonic() > end:
                raise self.failed("printed no further line")
            time.sleep(0.005)

    def say(self, line: str) -> None:
        """Write a line to its standard input. One that has died says so in finish()."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()

    def go(self) -> None:
        """Let it go on after `ready`."""
        self.say("go")

    def end_input(self) -> None:
        """The end of its standard input: a waiter ends at it."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def finish(self, timeout: float = TIMEOUT_S) -> str:
        """What it printed last. JobFailed: it failed, or did not end in time."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise self.failed(f"did not end in {timeout:g} s") from None
        if self.process.returncode:
            raise self.failed(f"failed ({self.process.returncode})")
        lines = self._tail(self.out).strip().splitlines()
        if not lines:
            raise self.failed("printed nothing")
        return lines[-1]

    def result(self, timeout: float = TIMEOUT_S) -> dict[str, Any]:
        """The JSON object that it printed last; a tool around it may have said more."""
        self.finish(timeout)
        lines = self._tail(self.out).strip().splitlines()
        line = next((line for line in reversed(lines) if line.startswith("{")), lines[-1])
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            raise self.failed(f"printed no JSON: {line!r}") from None
        said = [text for text in self._tail(self.err).splitlines() if text.startswith(INTERPOSER)]
        return answer | ({"interposer_said": said} if said else {})


@dataclass
class Sharing:
    """The daemon of a check, and jobs that it knows."""

    leased: Leased
    keeper: Keeper | None = None
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(10))

    @property
    def admin(self) -> Path:
        return self.leased.admin_socket

    def tenant(
        self,
        name: str,
        options: str,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        gpus: str = "0",
    ) -> Job:
        """Start a command as a job of its own. gpus: indices, with commas between."""
        number = next(self.numbers)
        wrapped = tenant.command(self.admin, number, options, *command, gpus=gpus)
        return Job.start(name, wrapped, env, number)

    def usage(self, job: Job) -> dict[str, Any]:
        """What the job had of the first GPU it shared."""
        usage = ask(self.admin, {"op": "usage", "job_id": job.number})["usage"]
        return dict(next(iter(usage.values())))

    def devices(self) -> list[dict[str, Any]]:
        return list(ask(self.admin, {"op": "status"})["devices"])


@contextmanager
def sharing(
    memory: str,
    limits: str = "",
    device: str = "",
    *,
    copies: bool = False,
    daemon: str = "",
    hurried: Sequence[str] = (),
) -> Iterator[Sharing]:
    """The daemon in a directory of its own. memory: cap of the device, as the config takes it.

    limits, device, daemon: lines of the configuration's tables of that name. copies: with
    gpu-leased-copies, as a site has it, so that jobs swap without asking for it. hurried: pauses of
    the daemon to be shorter (tests/slurm/hurried.py).
    """
    work = work_dir()
    extra = f'{daemon}[device]\nmemory = "{memory}"\n{device}[limits]\n{limits}'
    keeper = Keeper(work / "run") if copies else None
    try:
        with (
            keeper or nullcontext(),
            Leased(work, work / "run", os.environ, extra, hurried=hurried) as leased,
        ):
            try:
                yield Sharing(leased, keeper)
            finally:
                if leased.daemon is not None and not leased.daemon.running():
                    print(f"gpu-leased ended:\n{leased.daemon.tail()}", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def stopping(*jobs: Job) -> Iterator[None]:
    """Whatever happens within: at its end nothing of these jobs runs any more."""
    try:
        yield
    finally:
        for job in jobs:
            job.stop()


def finish_all(jobs: Sequence[Job], timeout: float = TIMEOUT_S) -> list[dict[str, Any]]:
    """What each printed; when one fails the others are stopped."""
    with stopping(*jobs):
        return [job.result(timeout) for job in jobs]


def run_together(jobs: Sequence[Job], timeout: float = TIMEOUT_S) -> list[dict[str, Any]]:
    """Let jobs that say `ready` go on at the same time; what each printed."""
    with stopping(*jobs):
        for job in jobs:
            job.wait_ready(timeout)
        for job in jobs:
            job.go()
        return finish_all(jobs, timeout)


# -- the host ---------------------------------------------------------------------


def touch_host_memory(size: int) -> None:
    """Use so many bytes once, and give them back.

    A virtual machine may get its memory only then, a few GiB a second, which would be
    measured as if it were the program's. In threads: each touches a part.
    """

    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p

    def touch(part: int) -> None:
        address = libc.malloc(ctypes.c_size_t(part))  # so large a one is mapped by itself
        if not address:
            raise MemoryError(f"the host has no {part} bytes")
        ctypes.memset(address, 1, part)
        libc.free(ctypes.c_void_p(address))

    workers = min(16, os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(touch, [size // workers] * workers))


# -- reports ----------------------------------------------------------------------


def show(name: str, value: Any) -> None:
    print(f"{name}: {json.dumps(value)}", flush=True)


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as they must be; what is no text is to the right."""
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for n, row in enumerate(cells):
        print("  ".join(text.ljust(width) for text, width in zip_strict(row, widths)))
        if n == 0:
            print("  ".join("-" * width for width in widths))
    sys.stdout.flush()


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write_report(name: str, report: Any) -> None:
    """NAME.json in $OUT, or in build/bench."""
    directory = Path(os.environ.get("OUT") or ROOT / "build" / "bench")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
