"""Programs are saved with their GPU memory, and go on on another node (docs/moving.md).

`python -m tests.gpu.check_saved [--only driver torch] [--mib N] [--place DIR]` as root, with CRIU
in PATH, on a machine with two GPUs of one kind. It is two nodes: each has a daemon, one of the
GPUs, and a mount namespace with its own files at paths that are the same on both. A program works
in a job on the first node, is saved to a directory and ends, and goes on in a job on the second
node; the digests of all its memory, or of all weights, have to be those of a bare run. `driver` has
--mib of cuMemAlloc, a graph and events; `torch` is a training (ResNet-152). The longest pause of
the program itself says how long it stood still, on one clock; it has to be at most --most seconds,
where --place is as fast as a site's shared disk: what one plain file of as many bytes takes there
is `disk_s`. Where it cannot be saved or restored, the reason is what was found, and the check has
failed. Prints a line a check and a table; writes saved.json in $OUT or build/bench.

`--only save`, and on another machine `--only restore`: the same program (--mib) on one GPU, between
two machines: --place is then to be brought from one to the other, at the same path, as the checkout
is. The first one has a PATH of CRIU alike.

To try it on the emulated GPU: `python -m tests.gpu.emulated --model emu-h200-medium --devices 2
tests.gpu.check_saved --only driver --mib 256 --turns 500`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from leased.saving.asking import ask_runner
from tests.gpu.checks import Result, run_checks
from tests.gpu.jobs import (
    Job,
    JobFailed,
    framework_python,
    on_gpu,
    python,
    show,
    stopping,
    touch_host_memory,
)
from tests.gpu.orders import END, give
from tests.slurm.leased import PRELOAD, Leased, config_text
from tests.support import tenant
from tests.support.own_files import own_files
from tests.support.work_dir import work_dir

AFTER = 3  # orders; the program is saved while it works on the second one
LATE_S = 0.3  # into its work
NUMBERS = (1, 2)  # of the job on each node
LIMITS = '[limits]\nswap_host = "4096GiB"\n'
GIB = 1 << 30


class Node:
    """One of the GPUs of this machine, and a daemon. before: what commands there begin with."""

    def __init__(
        self,
        gpu: int,
        place: Path,
        here: Path,
        *,
        before: Sequence[str] = (),
        preload: Path = PRELOAD,
    ):
        self.gpu, self._here, self._before = gpu, here, list(before)
        self.daemon = Leased(place, place / "run", os.environ, within=before)
        text = config_text(here / "run", here / "state", LIMITS, preload)
        self.daemon.config.write_text(text)

    def start(self, number: int, work: Path, place: Path, program: Sequence[str]) -> Job:
        """A job that runs a program, or goes on with the one that is saved in `place`."""
        socket = str(self._here / "run" / "tenant.sock")
        ctl = python("-m", "leased.cli.ctl", "--socket", socket)
        run = [*ctl, "run", "--checkpoint", str(place), "--", *program]
        shell = ["sh", "-c", 'exec "$0" "$@" >> "$OUT" 2>> "$ERR"', *run]
        admin = self._here / "run" / "admin.sock"
        wrapped = tenant.command(admin, number, "memory:swap", *shell, gpus=str(self.gpu))
        env = {
            "SLURM_JOB_ID": str(number),
            "OUT": str(work / "out"),
            "ERR": str(work / "err"),
            "PATH": f"{work}:{os.environ['PATH']}",
            "EMUGPU_LETS_GO": "1",
        }
        command = [*self._before, *wrapped]
        return Job.start(f"node {self.gpu}", command, on_gpu(self.gpu) | env, number)


@contextmanager
def two_nodes() -> Iterator[tuple[Path, list[Node]]]:
    """And a directory that both see."""
    work = work_dir()
    here, own = work / "here", [work / "node0", work / "node1"]
    for place in (here, *own):
        (place / "run").mkdir(parents=True)
    try:
        with ExitStack() as stack:
            nodes = [
                Node(n, place, here, before=own_files(place, here)) for n, place in enumerate(own)
            ]
            for node in nodes:
                stack.enter_context(node.daemon)
            _accept_requeues(work)
            yield work, nodes
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _accept_requeues(work: Path) -> None:
    """In Slurm's place."""
    (work / "scontrol").write_text("#!/bin/sh\nexit 0\n")
    (work / "scontrol").chmod(0o755)


class Program:
    """What is run, as orders tell it."""

    def __init__(
        self, command: Sequence[str], order: str, work: Path, seconds: float, *, given: int = 0
    ):
        self.orders = work / "orders"
        self.command = [*command, str(self.orders)]
        self._order, self._out, self._err = order, work / "out", work / "err"
        self._until = time.monotonic() + seconds
        self.orders.mkdir(exist_ok=True)
        self._given = given

    def give(self, order: str = "") -> None:
        give(self.orders, self._given, order or self._order)
        self._given += 1

    def wait(self, job: Job, what: str, is_so: Callable[[], bool]) -> None:
        """JobFailed: it is not so in time, or the job has ended."""
        while not is_so():
            if job.process.poll() is not None or time.monotonic() > self._until:
                raise job.failed(f"{what}: in vain\n{self.said()[-3000:]}")
            time.sleep(0.005)

    def said(self) -> str:
        return self._err.read_text() if self._err.exists() else ""

    def goes_on(self, job: Job) -> None:
        self.wait(job, "restored", lambda: "goes on from" in self.said())

    def printed(self) -> str:
        return self._out.read_text() if self._out.exists() else ""

    def answers(self) -> list[dict[str, Any]]:
        lines = self.printed().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line[:1] == "{" and line[-1:] == "\n"]

    def ready(self, job: Job) -> None:
        self.wait(job, "ready", lambda: "ready\n" in self.printed())

    def answered(self, job: Job, n: int) -> None:
        self.wait(job, f"answer {n}", lambda: len(self.answers()) >= n)


def bare(work: Path, command: Sequence[str], order: str, seconds: float) -> list[str]:
    """The digests of a run without any of this."""
    work.mkdir()
    program = Program(command, order, work, seconds)
    shell = ["sh", "-c", f'exec "$0" "$@" >> {work}/out 2>> {work}/err', *program.command]
    job = Job.start("bare", shell, on_gpu(0))
    with stopping(job):
        program.ready(job)
        for _ in range(AFTER):
            program.give()
        program.answered(job, AFTER)
        program.give(END)
        job.process.wait(60)
    return [answer["digest"] for answer in program.answers()]


def disk_s(place: Path, size: int) -> float:
    """What a plain file of so many bytes takes there, until the disk has them."""
    data, file = os.urandom(64 << 20), place / "plain"
    began = time.monotonic()
    with file.open("wb") as plain:
        for _ in range(size // len(data)):
            plain.write(data)
        plain.flush()
        os.fsync(plain.fileno())
    took = time.monotonic() - began
    file.unlink()
    return round(took, 2)


# -- between two nodes ------------------------------------------------------------------


def phases(saved: Path, asked_at: float) -> dict[str, float]:
    """When each part of a save was over, in seconds since it was asked for: its files say it."""
    images = [path.stat().st_mtime for path in (saved / "images").iterdir()]
    ends = {
        "files_s": max(path.stat().st_mtime for path in saved.glob("*.index")),
        "driver_s": min(images),
        "criu_s": max(images),
    }
    return {name: round(at - asked_at, 2) for name, at in ends.items()}


def check_between(command: Sequence[str], order: str, chosen: argparse.Namespace) -> Result:
    with two_nodes() as (work, nodes):
        right = bare(work / "bare", command, order, chosen.seconds)
        place = Path(chosen.place or work) / "saved"
        program = Program(command, order, work, chosen.seconds)
        first = nodes[0].start(NUMBERS[0], work, place, program.command)
        with stopping(first):
            program.ready(first)
            program.give()
            program.answered(first, 1)
            program.give()
            time.sleep(LATE_S)
            asked, began = time.time(), time.monotonic()
            told = ask_runner(str(NUMBERS[0]), {"directory": str(place), "requeue": True})
            took = phases(place / "complete", asked)
            took["saved_s"] = round(time.monotonic() - began, 2)
            show("saved", took)
            first.process.wait(60)
        second = nodes[1].start(NUMBERS[1], work, place, program.command)
        with stopping(second):
            program.goes_on(second)
            took["restored_s"] = round(time.monotonic() - began, 2)
            by_criu = (place / "complete/images/restored.pid").stat().st_mtime
            took["by_criu_s"] = round(by_criu - asked, 2)
            show("restored", took)
            program.answered(second, 2)
            took["works_s"] = round(time.monotonic() - began, 2)
            program.give()
            program.answered(second, AFTER)
            program.give(END)
            second.process.wait(60)
        answers = program.answers()
        took["disk_s"] = disk_s(place.parent, told["bytes"])
        shutil.rmtree(place, ignore_errors=True)
    equal = [answer["digest"] for answer in answers] == right
    gpus = [answer.get("gpu", "")[-4:] for answer in answers]
    still = answers[1].get("pause_s", took["restored_s"])
    return {
        "good": equal and still <= chosen.most,
        "summary": f"digests {'equal' if equal else 'DIFFER'}, {told['bytes'] / GIB:.2f} GiB, "
        f"stood still for {still} s (at most {chosen.most:g}), GPUs {gpus}: {json.dumps(took)}",
        "still_s": still,
        "bytes": told["bytes"],
        "took": took,
        "answers": answers,
    }


def loop(chosen: argparse.Namespace) -> list[str]:
    return framework_python("-m", "tests.gpu.move_loop", str(chosen.mib))


def check_driver(chosen: argparse.Namespace) -> Result:
    touch_host_memory(2 * chosen.mib << 20)
    return check_between(loop(chosen), str(chosen.turns), chosen)


def check_torch(chosen: argparse.Namespace) -> Result:
    options = ("--batch", str(chosen.batch), "--parts", "--orders")
    command = framework_python("-m", "tests.gpu.training", *options)
    return check_between(command, f"{chosen.steps} 0 1", chosen)


# -- between two machines ----------------------------------------------------------------


@contextmanager
def one_node(chosen: argparse.Namespace, given: int) -> Iterator[tuple[Path, Path, Node, Program]]:
    """The directory that is brought along, where the checkpoint is in it, and so on."""
    if not chosen.place:
        raise JobFailed("say --place")
    work = Path(chosen.place)
    own = work / "node"
    (own / "run").mkdir(parents=True, exist_ok=True)
    _accept_requeues(work)
    program = Program(loop(chosen), str(chosen.turns), work, chosen.seconds, given=given)
    preload = Path(shutil.copy(PRELOAD, work / PRELOAD.name))  # at the same path on both
    node = Node(0, own, own, preload=preload)
    with node.daemon:
        yield work, work / "saved", node, program


def check_save(chosen: argparse.Namespace) -> Result:
    with one_node(chosen, 0) as (work, place, node, program):
        right = bare(work / "bare", loop(chosen), str(chosen.turns), chosen.seconds)
        (work / "right").write_text(json.dumps(right))
        job = node.start(NUMBERS[0], work, place, program.command)
        with stopping(job):
            program.ready(job)
            program.give()
            program.answered(job, 1)
            told = ask_runner(str(NUMBERS[0]), {"directory": str(place), "requeue": True})
            job.process.wait(60)
    size = sum(p.stat().st_blocks * 512 for p in work.rglob("*") if p.is_file())
    return {"good": True, "summary": f"{json.dumps(told)}, {size} bytes in {work}"}


def check_restore(chosen: argparse.Namespace) -> Result:
    with one_node(chosen, 1) as (work, place, node, program):
        before = (place / "complete/checkpoint.json").read_text()
        job = node.start(NUMBERS[1], work, place, program.command)
        with stopping(job):
            program.goes_on(job)
            for _ in range(1, AFTER):
                program.give()
            program.answered(job, AFTER)
            program.give(END)
            job.process.wait(60)
        right = json.loads((work / "right").read_text())
    answers = program.answers()
    return {
        "good": [answer["digest"] for answer in answers] == right,
        "summary": f"digests {[a['digest'] for a in answers]}, bare {right}, GPUs "
        f"{[a['gpu'] for a in answers]}, saved on {json.loads(before)['gpus']}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=["driver", "torch"])
    parser.add_argument("--mib", type=int, default=16384, help="memory of the program `driver`")
    parser.add_argument("--turns", type=int, default=300, help="of its work, each order")
    parser.add_argument("--batch", type=int, default=75, help="of the training")
    parser.add_argument("--steps", type=int, default=12, help="of the training, each order")
    parser.add_argument("--place", default="", help="where the checkpoint is written")
    parser.add_argument("--most", type=float, default=20.0, help="seconds of standing still")
    parser.add_argument("--seconds", type=float, default=150.0, help="of each program")
    chosen = parser.parse_args()
    checks = {
        "driver": check_driver,
        "torch": check_torch,
        "save": check_save,
        "restore": check_restore,
    }
    return run_checks("saved", {n: partial(c, chosen) for n, c in checks.items()}, chosen.only)


if __name__ == "__main__":
    raise SystemExit(main())
