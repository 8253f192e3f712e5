"""What the interposer adds to a program by its calls: their number times the cost of each.

Both are measured within one process each, so the noise between processes is not in it: the
number by CUPTI (counting.py), the cost by making each call by turns through the interposer and
through the driver's own function (call_cost.cu). It covers calls; not where memory lies.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache

from tests.gpu.build import KERNELS, ROOT, build
from tests.gpu.jobs import Job, Sharing, on_gpu
from tests.gpu.speed.placing import pin

HOOKS = ROOT / "shim" / "driver" / "hooks.def"

# The kind of call_cost.cu whose cost a function has, by how its name begins; the first that fits.
# Of a pair that takes and gives back, half of the functions have the cost of both.
KINDS = {
    "cuGraphLaunch": "graph",
    "cuLaunch": "launch",
    "cuMemcpy": "copy",
    "cuMemset": "memset",
    "cuPointerGetAttribute": "pointer",
    "cuGetProcAddress": "address",
    "cuMemGetInfo": "memory",
    "cuDeviceTotalMem": "memory",
    "cuMemAllocAsync": "allocate_ordered",
    "cuMemAllocFromPoolAsync": "allocate_ordered",
    "cuMemAlloc_": "allocate",
}
WITH_ANOTHER = ("cuMemFree",)  # the cost is its allocation's


class UnknownCost(RuntimeError):
    """A program calls a function of the interposer whose cost is not measured."""


@cache
def interposed_functions() -> frozenset[str]:
    """The names in the table of hooks, without those that only wait during a stop."""
    names = set[str]()
    row = r"^(GATED2|GATED|BLOCKS2|BLOCKS|LOOKS|KEEPS|OWN2|OWN)\((\w+)(?:, (_\w+))?"
    for kind, name, suffix in re.findall(row, HOOKS.read_text(), re.MULTILINE):
        names |= {name, name + suffix} if kind in ("GATED2", "BLOCKS2", "OWN2") else {name}
    return frozenset(names)


def kind_of(function: str) -> str | None:
    """None: it costs nothing by itself. UnknownCost: its cost is not known."""
    if function not in interposed_functions() or function.startswith(WITH_ANOTHER):
        return None
    for start, kind in KINDS.items():
        if function.startswith(start):
            return kind
    raise UnknownCost(function)


def added_us(calls: Mapping[str, float], costs: Mapping[str, float]) -> float:
    """What so many calls of each function cost more. costs: ns of each kind."""
    kinds = ((kind_of(function), n) for function, n in calls.items())
    return sum(n * max(0.0, costs[kind]) for kind, n in kinds if kind) / 1e3


@dataclass(frozen=True)
class Added:
    """What the calls of a program cost more. unknown: calls of functions that are not in us."""

    us: float
    unknown: dict[str, int] = field(default_factory=dict)


def has_known_cost(function: str) -> bool:
    try:
        kind_of(function)
    except UnknownCost:
        return False
    return True


def added_by(calls: Mapping[str, int], costs: Mapping[str, float]) -> Added:
    """As added_us, where some functions have no known cost: these are named."""
    unknown = {function: n for function, n in calls.items() if not has_known_cost(function)}
    known = {function: n for function, n in calls.items() if function not in unknown}
    return Added(added_us(known, costs), unknown)


def measure_costs(
    share: Sharing, options: str, gpu: int, cores: Collection[int]
) -> dict[str, float]:
    """ns that the interposer adds to a call of each kind."""
    command, env = [str(build("call_cost")), str(KERNELS)], on_gpu(gpu)
    bare = Job.start("call_cost, bare", command, env)
    bare.finish()
    offsets = bare.printed().split()
    job = share.tenant("call_cost", options, [*command, *offsets], env, str(gpu))
    pin(job.process.pid, cores)
    return {kind: found["added_ns"] for kind, found in job.result().items()}
