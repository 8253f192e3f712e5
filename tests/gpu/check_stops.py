"""Programs that are stopped in mid-kernel at random moments: what they compute is a bare run's.

`python -m tests.gpu.check_stops [--only plain,graph,...] [--kinds swap,managed]` on a machine with
a GPU. Every program runs bare, all at once, and then all at once under the interposer, each in both
kinds of memory. Each has a daemon of its own that takes its lease back at random moments, has some
of its memory leave while its work is stopped, and grants again; and between handoffs has its work
run in four fifths of the time, which is a stop every 20 ms. A line a program: stops at handoffs,
how many were given up, stops by duty (reckoned from the time), bytes that left, digests equal.

`ipc`: two processes that share memory, of a job of gpu-leased that takes turns with another one.
`--also 'NAME=COMMAND'`, as often as wanted: any command that prints a line of JSON with a `digest`,
with all processes that it starts (`torchrun ... ddp.py` over two GPUs: `--gpus 0,1`). `--torch`:
PyTorch eager, by graphs, and JAX. `--under 'compute-sanitizer --tool memcheck'`: what stands before
each command. On the emulated GPU: `--only plain,managed,graph,host --mib 8 --rounds 1 --steps 40`.
Writes stops-GPU.json in $OUT or build/bench.
"""

from __future__ import annotations

import argparse
import random
import shlex
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pynvml
from _gpulease import lib

from leased.wire import daemon_messages
from tests.gpu import commands
from tests.gpu.build import KERNELS, build, build_all
from tests.gpu.checks import Result, run_checks
from tests.gpu.jobs import Job, JobFailed, finish_all, on_gpu, sharing, stopping
from tests.slurm.leased import PRELOAD
from tests.support.fake_daemon import Client, FakeDaemon
from tests.support.together import zip_strict
from tests.support.work_dir import work_dir

GIB = 1 << 30
DUTY, PERIOD_S = 800, 0.02  # per mille; how long it takes from one stop by duty to the next
BETWEEN_S, AWAY_S = (0.02, 0.25), (0.0, 0.02)  # of a lease; of its work being stopped
# By name: the program, and how many passes its kernels make and steps it does by default: some
# seconds of an H100.
PROGRAMS = {
    "plain": ("stops", 40, 400),
    "managed": ("stops", 40, 120),
    "graph": ("stops", 40, 400),
    "host": ("stops", 40, 400),
    "conditional": ("stops_runtime", 400, 60),
    "cooperative": ("stops_runtime", 200, 100),
    "faults": ("stops_runtime", 8, 60),
}
# A handoff seldom stops their kernels, which end before it would.
TORCH = {"torch_eager": 10_000, "torch_graph": 40_000, "jax_train": 20_000}
IPC = ("64", "512", "150", "32")  # MiB, MiB of ballast, rounds, threads: some 10 ms a kernel


@dataclass
class Counts:
    """What happened to the processes of one program."""

    handoffs: int = 0
    stops: int = 0
    given_up: dict[int, int] = field(default_factory=dict)  # by process
    why: str = ""
    refused: str = ""
    moved: int = 0
    seconds: float = 0.0

    @property
    def by_duty(self) -> int:
        return int(self.seconds / PERIOD_S)


@dataclass
class Tormentor:
    """The daemon of one program. uuids: of its GPUs."""

    daemon: FakeDaemon
    uuids: Sequence[str]
    swaps: bool
    chance: random.Random
    counts: Counts = field(default_factory=Counts)
    ends: threading.Event = field(default_factory=threading.Event)
    threads: dict[int, threading.Thread] = field(default_factory=dict)

    def watch(self) -> None:
        """Take each process of it in hand, as they come."""
        while not self.ends.wait(0.02):
            for pid, client in list(self.daemon.clients.items()):
                if pid not in self.threads:
                    thread = threading.Thread(target=self.torment, args=(client,), daemon=True)
                    self.threads[pid] = thread
                    thread.start()

    def torment(self, client: Client) -> None:
        with suppress(TimeoutError, OSError):  # it has ended
            client.until("request", lambda: client.wants)
            client.grant()
            client.until("word of its channel groups", lambda: client.channels)
            began = time.monotonic()
            for uuid in self.uuids:
                client.send(daemon_messages.run(uuid, lib.GL_RUN_DUTY, DUTY))
            try:
                while not self.ends.is_set():
                    self.handoff(client)
            finally:
                self.note(client, time.monotonic() - began)

    def handoff(self, client: Client) -> None:
        time.sleep(self.chance.uniform(*BETWEEN_S))
        stopped = client.revoke().stopped
        self.counts.handoffs += 1
        self.counts.stops += stopped
        if self.swaps and self.chance.random() < 0.7:
            had = {uuid: client.resident(uuid) for uuid in self.uuids}
            part = self.chance.choice([1.0, self.chance.random()])
            client.evict({uuid: int(n * part) for uuid, n in had.items()})
            self.counts.moved += sum(had[uuid] - client.resident(uuid) for uuid in self.uuids)
        elif not self.swaps and self.chance.random() < 0.3:
            client.send(daemon_messages.LEAVE)  # managed memory goes to the host
        time.sleep(self.chance.uniform(*AWAY_S))
        client.grant(dict.fromkeys(self.uuids, GIB) if not self.swaps else None)

    def note(self, client: Client, seconds: float) -> None:
        self.counts.seconds += seconds
        said = client.channels
        if said is not None and said.given_up:
            self.counts.given_up[client.pid] = said.given_up
            self.counts.why = said.reason
        if said is not None and said.state == lib.GL_CHANNELS_REFUSED:
            self.counts.refused = said.reason


@dataclass
class Bench:
    """gpus: indices. mib, rounds, steps: of each program, 0: its own."""

    gpus: list[int]
    mib: int
    rounds: int
    steps: int
    kinds: list[str]
    under: list[str]
    seed: int

    @property
    def env(self) -> dict[str, str]:
        return on_gpu(self.gpus[0]) | {"CUDA_VISIBLE_DEVICES": ",".join(map(str, self.gpus))}

    def command(self, name: str) -> list[str]:
        program, rounds, steps = PROGRAMS[name]
        numbers = (self.mib, self.rounds or rounds, self.steps or steps)
        return [str(build(program)), str(KERNELS), name, *map(str, numbers)]

    def devices(self) -> dict[str, int]:
        """By UUID, their bytes."""
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(gpu) for gpu in self.gpus]
        found = {
            str(pynvml.nvmlDeviceGetUUID(h)): int(pynvml.nvmlDeviceGetMemoryInfo(h).total)
            for h in handles
        }
        pynvml.nvmlShutdown()
        return found


def run_tormented(
    bench: Bench, programs: Mapping[str, list[str]], kind: str, folder: Path
) -> dict[str, tuple[Job, Tormentor]]:
    """All at once, to their ends."""
    devices, swaps = bench.devices(), kind == "swap"
    started: dict[str, tuple[Job, Tormentor]] = {}
    with ExitStack() as all_of_them:
        for n, (name, command) in enumerate(programs.items()):
            socket = folder / f"{kind}-{n}.sock"
            daemon = all_of_them.enter_context(FakeDaemon(socket, devices, auto=False, swaps=swaps))
            env = bench.env | {"LD_PRELOAD": str(PRELOAD), "GPU_LEASE_SOCKET": str(socket)}
            under = ["env", *(f"{key}={value}" for key, value in env.items())]
            job = Job.start(f"{name}, {kind}", [*bench.under, *under, *command])
            all_of_them.enter_context(stopping(job))
            chance = random.Random(f"{bench.seed} {name} {kind}")
            tormentor = Tormentor(daemon, list(devices), swaps, chance)
            threading.Thread(target=tormentor.watch, daemon=True).start()
            started[name] = job, tormentor
        for job, _ in started.values():
            with suppress(JobFailed):  # who reads its result says so
                job.finish()
        for _, tormentor in started.values():
            tormentor.ends.set()
            for thread in list(tormentor.threads.values()):
                thread.join(60)
    return started


def judge(name: str, bare: Result, job: Job, counts: Counts) -> Result:
    """One program in one kind of memory."""
    found = job.result()
    equal = found["digest"] == bare["digest"]
    given_up = sum(counts.given_up.values())
    words = [
        f"{counts.stops} stops of {counts.handoffs} handoffs",
        f"{given_up} given up" + (f" ({counts.why})" if given_up else ""),
        f"about {counts.by_duty} by duty",
        f"{counts.moved / GIB:.2f} GiB left",
        f"{counts.seconds:.1f} s",
        f"digest equal: {equal}",
        *([f"REFUSED: {counts.refused}"] if counts.refused else []),
    ]
    return {
        "good": equal and (bool(counts.stops) or name in TORCH) and not counts.refused,
        "summary": ", ".join(words),
        "bare": bare,
        "job": found,
        "counts": vars(counts),
    }


def check_programs(bench: Bench, programs: Mapping[str, list[str]]) -> Result:
    """Prints a line for each program and kind of memory."""
    jobs = [Job.start(f"{name}, bare", line, bench.env) for name, line in programs.items()]
    bare = dict(zip_strict(programs, finish_all(jobs)))
    runs: dict[str, Result] = {}
    folder = work_dir()
    try:
        for kind in bench.kinds:
            for name, (job, tormentor) in run_tormented(bench, programs, kind, folder).items():
                try:
                    found = judge(name, bare[name], job, tormentor.counts)
                except JobFailed as fault:
                    found = {"good": False, "summary": f"FAILED: {fault}"}
                runs[f"{name}, {kind}"] = found
                print(f"{name}, {kind}: {found['summary']}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    bad = [name for name, found in runs.items() if not found["good"]]
    stops = sum(found["counts"]["stops"] for found in runs.values() if "counts" in found)
    return {
        "good": not bad,
        "summary": f"{len(runs)} programs, {stops} stops at handoffs, not good: {bad or 'none'}",
        "runs": runs,
    }


def check_ipc(bench: Bench) -> Result:
    """Each of the two processes is stopped while the other one's work uses its memory."""
    options = "memory:swap,lock:on,tq:100ms"
    command = [str(build("ipc")), str(KERNELS), "pair", *IPC]
    other = [str(build("shares")), str(KERNELS), "add:64", "64", "8"]
    env, gpu = bench.env | {"GPU_LEASE_DEBUG": "1"}, str(bench.gpus[0])
    bare = Job.start("ipc, bare", command, bench.env).result()
    with sharing("32GiB", 'swap_host = "64GiB"\n') as share:
        rival = share.tenant("rival", options, other, env, gpu)
        with stopping(rival):
            rival.wait_ready()
            rival.say("60")
            job = share.tenant("ipc", options, command, env, gpu)
            [found] = finish_all([job])
            used = share.usage(job)
    stops = job.said().count("work is stopped in mid-kernel")
    equal = found["digest"] == bare["digest"] and not found["wrong_words"]
    return {
        "good": equal,
        "summary": f"{stops} stops of two processes, {used['handoffs']} handoffs, "
        f"{used['moved_bytes'] / GIB:.2f} GiB moved, digest equal: {equal}",
        "usage": used,
    }


def chosen_programs(bench: Bench, chosen: argparse.Namespace) -> dict[str, list[str]]:
    """By name, their commands."""
    only = chosen.only.split(",") if chosen.only else [*PROGRAMS, "ipc"]
    programs = {name: bench.command(name) for name in only if name in PROGRAMS}
    if chosen.torch:
        programs |= {name: commands.workload(name, 0, steps) for name, steps in TORCH.items()}
    for also in chosen.also:
        name, command = also.split("=", 1)
        programs[name] = shlex.split(command)
    return programs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names, with commas between; ipc")
    parser.add_argument("--gpus", default="0", help="indices, with commas between")
    parser.add_argument("--mib", type=int, default=256, help="of each piece of memory")
    parser.add_argument("--rounds", type=int, default=0, help="passes of a kernel")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--kinds", default="swap,managed", help="of memory, with commas between")
    parser.add_argument("--also", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--torch", action="store_true", help="programs of PyTorch and JAX as well")
    parser.add_argument("--under", default="", help="a command that runs each program")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    gpus = [int(gpu) for gpu in chosen.gpus.split(",")]
    bench = Bench(
        *(gpus, chosen.mib, chosen.rounds, chosen.steps),
        *(chosen.kinds.split(","), shlex.split(chosen.under), chosen.seed),
    )
    only = chosen.only.split(",") if chosen.only else [*PROGRAMS, "ipc"]
    needed = {PROGRAMS[name][0] for name in only if name in PROGRAMS}
    build_all(*needed, *(["ipc", "shares"] if "ipc" in only else []))
    programs = chosen_programs(bench, chosen)
    checks = {"programs": partial(check_programs, bench, programs)} if programs else {}
    if "ipc" in only:
        checks["ipc"] = partial(check_ipc, bench)
    return run_checks(f"stops-{gpus[0]}", checks, list(checks))


if __name__ == "__main__":
    raise SystemExit(main())
