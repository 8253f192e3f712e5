"""What programs feel of each other: every pair of them, by the driver's time slices and by ours.

`python -m tests.gpu.check_pairs [--only driver,torch,shares,service+saturating,...] [--seconds S]`
on a machine with a GPU, as root. service: 3.1 ms of work every 20 ms on average. saturating, small,
graph: kernels of 2.2 ms, of 0.1 ms, and a CUDA graph of 0.5 ms each, that always have work. long:
kernels of 300 ms. copies: to the device and back. server, training (small layers), resnet: PyTorch,
where it is there.
A step is a request, from when it was due, or some 20 ms of work (a kernel of `long`).

Each program runs alone, and each pair bare and then, beside gpu-leased-copies as on a site, as two
jobs of default options.
A program's p99 must be no worse than beside the same one under the driver's slices, but for NOISE
and HOST_MS, and where both always have work for SLICE_MS. shares_service is a service of
`request:0.3` beside `request:0`; shares_three and shares_kinds are three jobs of 0.3 : 0.4 : 0.3,
and what they got. `driver` means the pairs without PyTorch, `torch` those with it, `shares` the
rest: a pair takes `--settle` and twice `--seconds`, and what its programs need to start. Prints a
line a check and a table; writes pairs-GPU.json in $OUT or build/bench. On the emulated GPU: `--mib
1`.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import combinations
from typing import Any

from leased.slices.job import TURN_US
from tests.gpu.build import build
from tests.gpu.check_elastic import Program
from tests.gpu.check_slices import (
    AHEAD_MS,
    EVERY_MS,
    PAIR,
    REQUEST_MS,
    SWEEP_MS,
    THREE,
    Asked,
    Bench,
    programs,
    share_out,
)
from tests.gpu.checks import Result, run_checks
from tests.gpu.jobs import framework_python, sharing
from tests.support.together import zip_strict

# Parts of a second of one program differ by 5 to 10% on a card that is its own (docs/real-gpu.md).
NOISE = 1.1
HOST_MS = 0.5  # by which a sleeping thread wakes late
# A step that ends just behind a slice waits for one of the other job; ours are longer than the
# driver's where both always have work, since they cost fewer switches.
SLICE_MS = TURN_US / 1e3

STEP_MS = 20.0
GRAPH_MS, SMALL_MS, LONG_MS = 0.5, 0.1, 300.0
TAIL_S, LONG_TAIL_S = 0.3, 1.5  # that each works on, so that nobody's timed part ends alone
COPIES = 8  # of a step: 64 MiB there and back take 2.5 ms on PCIe of generation 5

Names = tuple[str, ...]  # of programs that work at the same time
Pair = tuple[str, str]


def steps(ms: float, kind: str = "add") -> Callable[[Bench], list[str]]:
    """Two steps ahead, of kernels of so many ms."""
    return lambda bench: bench.sweeps(ms, 2, max(1, round(STEP_MS / ms)), kind)


def copies(bench: Bench) -> list[str]:
    return [*bench.sweeps(1, 2, kind="copy")[:3], str(COPIES), "2"]


def loop(name: str) -> Callable[[Bench], list[str]]:
    return lambda _: framework_python("-m", "tests.gpu.share_loops", name)


PROGRAMS: dict[str, Callable[[Bench], list[str]]] = {
    "service": lambda bench: bench.sweeps(REQUEST_MS, 1),
    "saturating": steps(SWEEP_MS),
    "long": steps(LONG_MS),
    "small": steps(SMALL_MS),
    "graph": steps(GRAPH_MS, "graph"),
    "copies": copies,
    "server": loop("server"),
    "training": loop("torch"),
    "resnet": loop("resnet"),
}
TORCH = ("server", "training", "resnet")
SERVES = ("service", "server")
PAIRS = {"+".join(pair): pair for pair in combinations(PROGRAMS, 2)}


def line(name: str, seconds: float) -> str:
    """What makes a program work for so long."""
    return f"{seconds} {EVERY_MS}" if name in SERVES else f"{seconds}"


def felt(found: Mapping[str, Any]) -> Result:
    """What a program felt, and got done a second."""
    took = {key: found[key] for key in ("mean_ms", "p50_ms", "p99_ms", "max_ms", "steps")}
    done = found["steps"] / (found["to"] - found["from"])
    return took | {"done_s": done, "wrong": found.get("wrong", 0)}


def together(
    names: Names, started: Sequence[Program], settle: float, seconds: float
) -> dict[str, Result]:
    """What each felt in the timed part, by its name."""
    parts = (settle, seconds, LONG_TAIL_S if "long" in names else TAIL_S)
    for name, program in zip_strict(names, started):
        for part in parts:
            program.job.say(line(name, part))
    answers = [[program.result() for _ in parts] for program in started]
    return {name: felt(found[1]) for name, found in zip_strict(names, answers)}


def bare(bench: Bench, pairs: Sequence[Pair]) -> dict[Names, dict[str, Result]]:
    """Alone and by the driver's slices. Each program is started once."""
    found: dict[Names, dict[str, Result]] = {}
    with ExitStack() as stack:
        started: dict[str, Program] = {}
        for name in dict.fromkeys(name for pair in pairs for name in pair):
            job = bench.bare(name, PROGRAMS[name](bench))
            [started[name]] = stack.enter_context(programs(job))
        for names in [*((name,) for name in started), *pairs]:
            found[names] = together(names, [started[n] for n in names], TAIL_S, bench.seconds)
    return found


def leased(bench: Bench, pair: Pair, options: Sequence[str]) -> dict[str, Result]:
    """As jobs of these options."""
    with sharing("32GiB", copies=True) as share:
        jobs = [
            bench.tenant(share, name, wanted, PROGRAMS[name](bench))
            for name, wanted in zip_strict(pair, options)
        ]
        with programs(*jobs) as both:
            return together(pair, both, bench.settle, bench.seconds)


def most_ms(pair: Pair, p99_ms: float) -> float:
    """The p99 that a program of the pair may have. p99_ms: by the driver's slices."""
    always = not any(name in SERVES for name in pair)
    return NOISE * p99_ms + HOST_MS + (SLICE_MS if always else 0)


def judged(
    pair: Pair,
    alone: Mapping[str, Mapping[str, Any]],
    before: Mapping[str, Mapping[str, Any]],
    now: Mapping[str, Mapping[str, Any]],
) -> Result:
    """What each felt alone, before: by the driver's slices, and now: by ours."""
    late = [n for n in pair if now[n]["p99_ms"] > most_ms(pair, before[n]["p99_ms"])]
    wrong = sum(run[name]["wrong"] for run in (before, now) for name in pair)
    texts = [f"{n} {said(alone[n])}, {said(before[n])} -> {said(now[n])}" for n in pair]
    if late:
        texts.append(f"p99 is worse: {', '.join(late)}")
    return {
        "good": not late and not wrong,
        "summary": f"{'; '.join(texts)}; {wrong} wrong",
        "alone": dict(alone),
        "bare": dict(before),
        "leased": dict(now),
    }


def said(one: Mapping[str, Any]) -> str:
    return f"{one['p50_ms']:.2f}/{one['p99_ms']:.2f} ms {one['done_s']:.1f}/s"


# Of three kinds of kernels.
KINDS = (
    Asked(0.3, SMALL_MS, round(AHEAD_MS / SMALL_MS)),
    Asked(0.4, 5 * GRAPH_MS, round(AHEAD_MS / 5 / GRAPH_MS), "graph"),
    Asked(0.3, SWEEP_MS, round(AHEAD_MS / SWEEP_MS)),
)
SHARES = ("shares_service", "shares_two", "shares_three", "shares_kinds")
GROUPS = {
    "driver": [name for name, pair in PAIRS.items() if not set(TORCH) & set(pair)],
    "torch": [name for name, pair in PAIRS.items() if set(TORCH) & set(pair)],
    "shares": list(SHARES),
}


def has_torch() -> bool:
    """Whether there is a PyTorch that sees a GPU."""
    asked = framework_python("-c", "import torch; assert torch.cuda.is_available()")
    return not subprocess.run(asked, check=False, capture_output=True).returncode


def chosen_names(only: str) -> list[str]:
    """Names of checks, of those and of groups; "": of all that can run."""
    groups = ["driver", "shares", *(["torch"] if not only and has_torch() else [])]
    asked = only.split(",") if only else groups
    return [name for one in asked for name in GROUPS.get(one, [one])]


def checks_of(bench: Bench, names: Sequence[str]) -> dict[str, Callable[[], Result]]:
    """The checks; the driver's slices are measured before the first one."""
    shared: Pair = ("service", "saturating")
    pairs = {name: PAIRS[name] for name in names if name in PAIRS}
    if "shares_service" in names:
        pairs["shares_service"] = shared
    before = bare(bench, list(dict.fromkeys(pairs.values())))

    def check(pair: Pair, options: Sequence[str]) -> Result:
        alone = {name: before[name,][name] for name in pair}
        return judged(pair, alone, before[pair], leased(bench, pair, options))

    checks: dict[str, Callable[[], Result]] = {
        name: partial(check, pair, ("", "")) for name, pair in pairs.items()
    }
    return checks | {
        "shares_service": partial(check, shared, ("request:0.3", "request:0")),
        "shares_two": partial(share_out, bench, PAIR),
        "shares_three": partial(share_out, bench, THREE),
        "shares_kinds": partial(share_out, bench, KINDS),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help=f"pairs, or {', '.join([*GROUPS, *SHARES])}")
    parser.add_argument("--gpu", type=int, default=0, help="index")
    parser.add_argument("--mib", type=int, default=64, help="of memory that a kernel sweeps")
    parser.add_argument("--seconds", type=float, default=2, help="of a timed part")
    parser.add_argument("--settle", type=float, default=3, help="seconds before it under gpu-lease")
    chosen = parser.parse_args()
    names = chosen_names(chosen.only)
    unknown = [name for name in names if name not in {*PAIRS, *SHARES}]
    if unknown:
        parser.error(f"no check {', '.join(unknown)}; there is {', '.join([*PAIRS, *SHARES])}")
    build("shares")
    bench = Bench(chosen.gpu, chosen.mib, chosen.seconds, chosen.settle, 0, 0, "")
    return run_checks(f"pairs-{chosen.gpu}", checks_of(bench, names), names)


if __name__ == "__main__":
    raise SystemExit(main())
