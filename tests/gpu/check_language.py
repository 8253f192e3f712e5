"""A language model that answers requests with class:online, beside one in training with
class:offline, and by other ways.

`python -m tests.gpu.check_language [--ways driver,gpu-lease,mps]` on a machine with a GPU, PyTorch
and transformers, as root; some two and a half minutes, and 45 GiB of the GPU (tests/gpu/language.py
has the programs; FRAMEWORK_PYTHON: the Python that has those packages). Ways: the driver's time
slices, gpu-lease, and MPS where a server of it can be started. Time to the first token and to each
further one is given against the server alone, and what the training does as a part of what it does
by the driver's slices. By `driver` and MPS the server alone is measured first, in one process with
`driver`. Under gpu-lease it is measured in the same process as beside the training, by `--turns` of
`--seconds` in all: a prompt is read by a thousand kernels that Python launches, and that takes half
as long again in some seconds, and in some processes, as in others. The daemon's estimate of the
slowdown stands beside what whole requests took longer (`daemon_slowdown`, `measured_slowdown`). The
training's weights after STEPS steps beside the server under gpu-lease have to equal those of its
steps alone. Each way is printed and written to language-GPU.json in $OUT or build/bench as soon as
it is known.
Exit status 1: a program failed, weights differ, or the server is slower than by the driver's
slices. `--small`: to try the check without a GPU (`--ways driver`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any

from leased.api.client import ask
from tests.gpu.check_classes import MANY, OPTIONS, mps_server
from tests.gpu.check_elastic import Program
from tests.gpu.checks import Result
from tests.gpu.jobs import (
    Job,
    Sharing,
    framework_python,
    on_gpu,
    print_table,
    sharing,
    stopping,
    write_report,
)
from tests.support.together import zip_strict

NAMES = ("serve", "finetune")
STEPS = 60
EVERY_MS = 300.0  # between two requests, on average
WAYS = ("driver", "gpu-lease", "mps")
# What may be longer than alone, as a mean, by how much.
KEPT = {"first token": ("first_ms", 0.05), "further ones": ("token_ms", 0.03)}
TIMES = ("first_ms", "token_ms", "request_ms")  # that the server says of each
BARE, BY_TURNS = "server alone", "server alone, by turns"  # that, and under gpu-lease


class Bench:
    """What all ways use."""

    def __init__(self, chosen: argparse.Namespace):
        self.gpu, self.seconds, self.settle = chosen.gpu, chosen.seconds, chosen.settle
        self.every_ms, self.steps, self.turns = chosen.every, chosen.steps, chosen.turns
        self.slowdown: float = chosen.slowdown
        self.more = ["--small"] if chosen.small else []
        self.report: dict[str, Any] = {}

    def command(self, name: str) -> list[str]:
        return framework_python("-m", "tests.gpu.language", name, *self.more)

    def serve(self, server: Program, seconds: float) -> None:
        server.job.say(f"{seconds:g} {self.every_ms:g}")

    def together(self, server: Program, training: Program, seconds: float) -> Result:
        """What each did in so many seconds."""
        self.serve(server, seconds)
        training.job.say(f"seconds {seconds:g}")
        return {**server.result(), **training.result()}

    def by_turns(self, server: Program, training: Program) -> tuple[Result, Result]:
        """What the server did while the training had nothing to do, and what both did together."""
        alone, both, seconds = [], [], self.seconds / self.turns
        for _ in range(self.turns):
            self.serve(server, seconds)
            alone.append(server.result())
            both.append(self.together(server, training, seconds))
        return pooled(alone), pooled(both)

    def tell(self, name: str, found: Result) -> None:
        """found: what the programs have said."""
        found = {key: figures(one) if key in TIMES else one for key, one in found.items()}
        self.report[name] = found
        write_report(f"language-{self.gpu}", self.report)
        print(f"{name}: {words(found)}", flush=True)


def pooled(parts: Sequence[Result]) -> Result:
    """Of parts that took the same time."""
    found = dict(parts[0])
    for key in TIMES:
        found[key] = [ms for part in parts for ms in part[key]]
    if "steps_s" in found:
        found["steps_s"] = fmean(part["steps_s"] for part in parts)
    return found


def figures(took: Sequence[float]) -> dict[str, float]:
    """took: ms, of each."""
    ms = sorted(took)
    late = ms[min(len(ms) - 1, len(ms) * 99 // 100)]
    return {"mean": fmean(ms), "p50": ms[len(ms) // 2], "p99": late, "count": len(ms)}


def words(found: Mapping[str, Any]) -> str:
    texts = []
    if "first_ms" in found:
        for what, (key, _) in KEPT.items():
            one = found[key]
            shown = "/".join(f"{one[name]:.2f}" for name in ("mean", "p50", "p99"))
            texts.append(f"{what} mean/p50/p99 {shown} ms")
        tokens_s, requests = 1e3 / found["token_ms"]["mean"], found["first_ms"]["count"]
        texts.append(f"{tokens_s:.1f} tokens/s ({found['decode']}), {requests} requests")
    if "steps_s" in found:
        texts.append(f"{found['steps_s']:.3f} steps/s")
    if "digest" in found:
        texts.append(f"weights {found['digest']} after {found['steps']} steps")
    return "; ".join(texts)


@contextmanager
def ready(jobs: Sequence[Job]) -> Iterator[list[Program]]:
    with stopping(*jobs):
        yield [Program(job) for job in jobs]


def driver(bench: Bench) -> None:
    """Each alone, and both by the driver's slices."""
    jobs = [Job.start(f"{name}, bare", bench.command(name), on_gpu(bench.gpu)) for name in NAMES]
    with ready(jobs) as (server, training):
        bench.serve(server, bench.seconds)
        bench.tell(BARE, server.result())
        training.job.say(f"steps {bench.steps}")
        bench.tell("training alone", training.result())
        bench.tell("driver", bench.together(server, training, bench.seconds))


def ours(bench: Bench) -> None:
    limits = f"online_slowdown = {bench.slowdown}\n{MANY}"
    with sharing("60GiB", limits, copies=True) as share:
        jobs = [
            share.tenant(name, wanted, bench.command(name), on_gpu(bench.gpu), str(bench.gpu))
            for name, wanted in zip_strict(NAMES, OPTIONS)
        ]
        with ready(jobs) as (server, training):
            bench.serve(server, bench.settle)
            training.job.say(f"steps {bench.steps}")
            bench.tell("gpu-lease, at first", {**server.result(), **training.result()})
            alone, both = bench.by_turns(server, training)
            bench.tell(BY_TURNS, alone)
            bench.tell("gpu-lease", both)
            compare(bench, share)


def compare(bench: Bench, share: Sharing) -> None:
    """By how much the server is slowed down, and what the training has, as the daemon sees it;
    and by how much each request took longer than alone, as the server itself has measured it. Both
    are of all its work, the prompts and the tokens."""
    status = ask(share.admin, {"op": "status"})
    slowdown = status["devices"][0]["online_slowdown"]
    duties = [one["duty"] for t in status["tenants"] for one in t["slices"].values()]
    alone, found = bench.report[BY_TURNS], bench.report["gpu-lease"]
    took = found["request_ms"]["mean"] / alone["request_ms"]["mean"] - 1
    found["daemon_slowdown"], found["measured_slowdown"] = slowdown, took
    said = "not known" if slowdown is None else f"{slowdown:+.3f}"
    print(f"slowdown: the daemon's estimate {said}, measured {took:+.3f}", flush=True)
    health = found["health"] = status["devices"][0]["offline_health"]["state"]
    print(f"duty of the training: {min(duties, default=None)}; the GPU is {health}", flush=True)
    write_report(f"language-{bench.gpu}", bench.report)


def mps(bench: Bench) -> None:
    with mps_server(bench.gpu) as env:
        jobs = [Job.start(f"{name}, MPS", bench.command(name), dict(env)) for name in NAMES]
        with ready(jobs) as (server, training):
            bench.tell("mps", bench.together(server, training, bench.seconds))


def judge(report: Mapping[str, Result]) -> bool:
    """Print what the ways come to. Whether all is as it should be."""
    good = True
    plain, rows = report.get("driver"), []
    for way in WAYS:
        found = report.get(way)
        before = report.get(BY_TURNS if way == "gpu-lease" else BARE)
        if before is None or found is None:
            continue
        slower = {what: found[key]["mean"] / before[key]["mean"] for what, (key, _) in KEPT.items()}
        part = found["steps_s"] / plain["steps_s"] if plain else None
        rows.append([way, *slower.values(), part])
        if way == "gpu-lease" and plain:
            good &= all(found[key]["mean"] <= plain[key]["mean"] for key, _ in KEPT.values())
    if rows:
        print_table(["way", *(f"{what}, of alone" for what in KEPT), "training, of driver's"], rows)
        most = ", ".join(f"{what} {1 + part:g}" for what, (_, part) in KEPT.items())
        print(f"what gpu-lease is to keep: {most}", flush=True)
    digests = {one["digest"] for one in report.values() if "digest" in one}
    print(f"weights equal: {'yes' if len(digests) == 1 else sorted(digests)}", flush=True)
    return good and len(digests) <= 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ways", default=",".join(WAYS), help="with commas between")
    parser.add_argument("--gpu", type=int, default=0, help="index")
    parser.add_argument("--slowdown", type=float, default=0.05, help="limits.online_slowdown")
    parser.add_argument("--seconds", type=float, default=10, help="of a timed part")
    parser.add_argument(
        "--settle", type=float, default=10, help="seconds before it under gpu-lease"
    )
    parser.add_argument("--turns", type=int, default=2, help="under gpu-lease")
    parser.add_argument("--every", type=float, default=EVERY_MS, help="ms between requests")
    parser.add_argument("--steps", type=int, default=STEPS, help="after which weights are compared")
    parser.add_argument("--small", action="store_true", help="models that a CPU can run")
    chosen = parser.parse_args()
    bench, failed = Bench(chosen), False
    known = {"driver": driver, "gpu-lease": ours, "mps": mps}
    ways = chosen.ways.split(",")
    if unknown := [way for way in ways if way not in known]:
        parser.error(f"no way {', '.join(unknown)}; there is {', '.join(known)}")
    for way in ways:
        try:
            known[way](bench)
        except Exception as fault:
            print(f"{way} FAILED: {fault}", flush=True)
            failed = failed or way != "mps"
    return 0 if judge(bench.report) and not failed else 1


if __name__ == "__main__":
    raise SystemExit(main())
