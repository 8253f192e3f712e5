"""What the daemon costs: `make bench NAME=daemon` writes build/bench/daemon.json.

The real daemon with 8 emulated GPUs and 256 jobs of 4 processes: 1,024 connections. Each job
is a C process of its own and a user of its own (daemon_load.c) that speaks the protocol as
the interposer does, and makes no CUDA call. All jobs have lock:on, their memory does not fit
together, and `squeue` is a stand-in that says that every job still runs. In this order:

cpu_idle: cores that the daemon uses with 64 jobs connected of which none asks.
grant_us: from just before a process sends REQUEST to when it has read its GRANT, of a GPU that
    nobody holds and 31 idle jobs share, while the jobs of the 7 other GPUs hand over every
    30 ms. echo_us: between those samples, a round trip of the same sizes with a C process that
    does nothing else: what this machine takes for it at that moment. grant_over_echo: p50s.
handoff_us: from just before the last process of a job sends RELEASED to when one of the next job
    has read its GRANT, where a GPU is handed over every 30 ms and nothing else happens, so that
    the daemon's code and data are in no cache any more. handoff_over_echo: in proportion to p50
    of echo_us.
handoffs_per_s: leases granted when everybody wants and releases as soon as it is granted. A job
    of several processes keeps its lease as long as one of them wants it, so each ends with its
    quantum, and this is the devices divided by 30 ms.
cpu_busy: cores of the daemon when every GPU is handed over about every 8 ms, in proportion to
    1,000 handoffs/s altogether; us_per_handoff is the same for one. pace: what it really was.
scaling: microseconds of the daemon for a handoff, by how many jobs wait for each GPU; slices of
    one and the other by turns.
rss_mib: resident memory of the daemon at the end.
steps: STEP messages; above 0 some process was slow to answer (a busy machine).
cores_elsewhere: cores that others used meanwhile, of cores; figures are good where it is near 0.

The CPU time is that of the daemon's process (utime + stime), without its children.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leased.api.client import ask
from tests.bench import write
from tests.bench.targets import beyond, print_table
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.support.together import zip_strict

ROOT = Path(__file__).resolve().parents[2]
LOAD = ROOT / "build" / "meson" / "tests" / "bench" / "daemon_load"
DEVICES, TENANTS, IDLE_TENANTS, CLIENTS = 8, 256, 64, 4
EACH = TENANTS // DEVICES
FEW = 3  # one holds and two wait
SAMPLES = 3000
PACE_S = 0.008  # of one device; eight make 1,000 a second
PACED = DEVICES / PACE_S
CONFIG = """
[limits]
quantum_min = "1ms"
[device]
link_gib_s = 47.5
"""
SQUEUE = '#!/bin/sh\nIFS=,; for job in $5; do echo "$job RUNNING"; done\n'
TARGETS = {
    "grant p50, us": 150,
    "grant p99, us": 2000,
    "cpu idle, cores": 0.01,
    "cpu busy, cores": 0.30,
    "rss, MiB": 80,
}


class LoadEnded(Exception):
    """A job was refused, or the daemon ended."""


class Load:
    """daemon_load, which is told what its jobs do; a context manager."""

    def __init__(self, leased: Leased):
        sockets = [str(leased.admin_socket), str(leased.run_dir / "tenant.sock")]
        self.process = subprocess.Popen(
            [str(LOAD), *sockets, str(DEVICES), str(CLIENTS), "tq:30ms,lock:on"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()  # and its children with it
            self.process.wait()

    def tell(self, order: str) -> Any:
        """The answer to an order; see daemon_load.c."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(order, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise LoadEnded(f"daemon_load ended at: {order}")
        return json.loads(answer)


@dataclass(frozen=True)
class Interval:
    """What the daemon did in so many seconds, and the CPU seconds it took."""

    seconds: float
    cpu_s: float
    handoffs: int

    @property
    def cores(self) -> float:
        return self.cpu_s / self.seconds

    @property
    def per_s(self) -> float:
        return self.handoffs / self.seconds

    @property
    def each_us(self) -> float:
        return 1e6 * self.cpu_s / self.handoffs


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def elsewhere_s() -> float:
    """CPU seconds of this machine so far, less those of us and of children that have ended."""
    user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
    ours = sum(
        sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return (user + nice + system) / os.sysconf("SC_CLK_TCK") - ours


@dataclass(frozen=True)
class Bench:
    """A daemon and its load. idle_s, busy_s: how long to look at each."""

    leased: Leased
    load: Load
    idle_s: float
    busy_s: float

    @property
    def pid(self) -> int:
        assert self.leased.daemon is not None
        return self.leased.daemon.process.pid

    def watch(self, seconds: float) -> Interval:
        """What it does meanwhile."""
        start, cpu, leases = time.monotonic(), cpu_s(self.pid), self.load.tell("count")["leases"]
        time.sleep(seconds)
        taken, cpu = time.monotonic() - start, cpu_s(self.pid) - cpu
        return Interval(taken, cpu, self.load.tell("count")["leases"] - leases)

    def set_quantum(self, quantum_s: float) -> None:
        text = f"{1000 * quantum_s:.3f}ms"
        ask(self.leased.admin_socket, {"op": "set", "device": "all", "quantum": text})

    def measure_grants(self) -> dict[str, Any]:
        self.load.tell(f"hold {EACH} {DEVICES - 1}")
        grants, echoes = zip_strict(*self.load.tell(f"measure {SAMPLES}"))
        grant, echo = percentiles(grants), percentiles(echoes)
        ratio = round(grant["p50"] / echo["p50"], 1)
        return {"grant_us": grant, "echo_us": echo, "grant_over_echo": ratio}

    def measure_handoffs(self, echo_us: float) -> dict[str, Any]:
        self.load.tell(f"hold {FEW} 1")
        self.load.tell("handoffs")
        time.sleep(self.busy_s / 2)
        handoff = percentiles(self.load.tell("handoffs"))
        self.load.tell("idle")
        return {"handoff_us": handoff, "handoff_over_echo": round(handoff["p50"] / echo_us, 1)}

    def measure_most(self) -> float:
        self.load.tell(f"pass {EACH} {DEVICES}")
        most = self.watch(self.busy_s / 2).per_s
        self.load.tell("idle")
        return most

    def find_pace(self) -> float:
        """Seconds of a quantum such that a device is handed over every PACE_S."""
        self.set_quantum(PACE_S)
        self.load.tell(f"hold {EACH} {DEVICES}")
        handoff = DEVICES / self.watch(2).per_s - PACE_S
        return max(PACE_S / 4, PACE_S - max(0.0, handoff))

    def measure_busy(self) -> dict[str, Any]:
        quantum = self.find_pace()
        self.set_quantum(quantum)
        busy = self.watch(self.busy_s)
        scaling = {FEW - 1: 0.0, EACH - 1: 0.0}
        for _ in range(2):
            for waiters in scaling:
                self.load.tell(f"hold {waiters + 1} {DEVICES}")
                scaling[waiters] += self.watch(self.busy_s / 4).each_us / 2
        return {
            "cpu_busy": round(busy.cores * PACED / busy.per_s, 4),
            "us_per_handoff": round(busy.each_us, 1),
            "pace": {
                "handoffs_per_s": round(busy.per_s, 1),
                "cores": round(busy.cores, 4),
                "quantum_ms": round(1000 * quantum, 3),
            },
            "scaling": {str(waiters): round(us, 1) for waiters, us in scaling.items()},
        }

    def measure(self) -> dict[str, Any]:
        self.load.tell(f"add {IDLE_TENANTS}")
        idle = self.watch(self.idle_s).cores
        self.load.tell(f"add {TENANTS - IDLE_TENANTS}")
        report = {"cpu_idle": round(idle, 4)} | self.measure_grants()
        report |= self.measure_handoffs(report["echo_us"]["p50"])
        report["handoffs_per_s"] = round(self.measure_most(), 1)
        report |= self.measure_busy()
        report["rss_mib"] = round(rss_mib(self.pid), 1)
        report["steps"] = self.load.tell("count")["steps"]
        return report


def percentiles(ns: Sequence[int]) -> dict[str, float]:
    """In microseconds."""
    ordered = sorted(ns)
    return {f"p{p}": round(ordered[len(ordered) * p // 100] / 1000, 1) for p in (50, 99)}


def run(work: Path, idle_s: float, busy_s: float) -> dict[str, Any]:
    work.chmod(0o711)  # the jobs are other users
    commands = work / "bin"
    commands.mkdir()
    (commands / "squeue").write_text(SQUEUE)
    (commands / "squeue").chmod(0o755)
    with EmulatedGpu(work / "gpu", model="emu-a100-tiny", devices=DEVICES) as gpu:
        env = os.environ | gpu.env | {"PATH": str(commands)}
        with Leased(work / "leased", work / "run", env, CONFIG) as leased, Load(leased) as load:
            try:
                return Bench(leased, load, idle_s, busy_s).measure()
            except LoadEnded as fault:
                assert leased.daemon is not None
                raise SystemExit(
                    f"{fault}; the daemon's last words:\n{leased.daemon.tail()}"
                ) from None


def figures(report: dict[str, Any]) -> dict[str, Any]:
    """What the table shows, by name."""
    grant, echo, handoff = report["grant_us"], report["echo_us"], report["handoff_us"]
    return {
        "grant p50, us": grant["p50"],
        "grant p99, us": grant["p99"],
        "handoff p50, us": handoff["p50"],
        "handoff p99, us": handoff["p99"],
        "echo p50, us": echo["p50"],
        "echo p99, us": echo["p99"],
        "handoffs/s, most": report["handoffs_per_s"],
        "cpu idle, cores": report["cpu_idle"],
        "cpu busy, cores": report["cpu_busy"],
        "cpu a handoff, us": report["us_per_handoff"],
        **{f"  {n} jobs wait": us for n, us in report["scaling"].items()},
        "handoffs/s, paced": report["pace"]["handoffs_per_s"],
        "rss, MiB": report["rss_mib"],
        "steps": report["steps"],
        "cores elsewhere": report["cores_elsewhere"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--idle", type=float, default=62, help="seconds to look at the idle daemon")
    parser.add_argument("--busy", type=float, default=12, help="seconds to look at the busy daemon")
    chosen = parser.parse_args()
    if os.geteuid():
        raise SystemExit("run as root: the jobs are users of their own")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # as the unit does
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended too

    def measure(work: Path) -> dict[str, Any]:
        start, elsewhere = time.monotonic(), elsewhere_s()
        report = run(work, chosen.idle, chosen.busy)
        elsewhere = (elsewhere_s() - elsewhere) / (time.monotonic() - start)
        return report | {"cores": os.cpu_count(), "cores_elsewhere": round(elsewhere, 2)}

    rows = figures(write("daemon", measure))
    print_table(rows, TARGETS)
    if missed := beyond(rows, TARGETS):
        raise SystemExit(f"beyond the target, if cores elsewhere is near 0: {', '.join(missed)}")


if __name__ == "__main__":
    main()
