"""Jobs on several nodes, in simulated time and with real daemons.

`make bench NAME=across` writes build/bench/across.json.

64 jobs on 8 nodes of 8 GPUs each: 40 of 2 to 8 nodes and 24 on one. The protocol is the daemons'
own (leased/across); nodes, GPUs and the network are simulated (tests/across/fleet.py). A message
takes 0.1 ms and a little more, links between two nodes drop for 1 to 10 s, single messages are lost
or come twice, daemons die and start again, and clocks differ by minutes, in their speed too. What
is taken back or stopped takes 0.2 to 2 ms.

grants: how often a job on several nodes began to run on all of them. half_gangs: moments at which a
member ran while another job could have GPUs of another member. deadlocks: jobs that in the end,
with nothing failing any more, did not run within ten minutes. All three are sums of what is
simulated and what is real. grant_ms, of what is simulated: from when its last member was ready to
when the last one ran, with taking back what was lent. skew_ms: between the first member and the
last one being told to stop. states_checked: worlds of small clusters that were gone through
(tests/across/search.py).

simulated: by itself (tests/bench/across_simulated.py). real: of the same number of jobs and nodes
with real daemons, each in a network namespace of its own (tests/bench/across_eight.py); of each
half gang of theirs across_evidence.json tells more. pair, rl_pair_speedup: of two nodes with real
programs on emulated GPUs (tests/bench/across_nodes.py). took_s: each part.

`ARGS="GRANTS REAL SECONDS"`: how many grants are simulated, how many are real, and for how long the
pair runs. Each part is written when it is there. At the end stand the figures that have targets;
those of `real` twice, as they were on this machine's cores, and free of waiting for one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tests.across.search import explore
from tests.across.world import Budget, Jobs
from tests.bench import ROOT, across_eight, across_nodes, across_simulated, write_as_it_comes
from tests.bench.targets import print_table
from tests.support.nodes import munged

DEFAULTS = (1_000_000, 2_000, 15.0)
PROOF = ROOT / "build" / "bench" / "across_evidence.json"
OF_BOTH = "grants", "half_gangs", "deadlocks"
OF_SIMULATED = "grant_ms_p50", "grant_ms_p99", "skew_ms_p99"
TARGETS = {
    **{"half_gangs": 0, "deadlocks": 0, "grant_ms_p99": 5, "skew_ms_p99": 2},
    **{"rl_pair_speedup": 1.75, "real.free_grant_ms_p99": 5, "real.free_skew_ms_p99": 2},
    **{"real.grant_ms_p99": 5, "real.skew_ms_p99": 2},
}
SAID_OF_REAL = """Its grant_ms and skew_ms are what was seen,
most of it waiting for a core; free_ is without what processes and daemons on the way waited."""
PAIR = {"j1": ("a", "b"), "j2": ("b", "a")}
ONE = {"j1": ("a", "b")}
CHAIN = {"j1": ("a", "b"), "j2": ("b", "c")}
THREE = {"j1": ("a", "b", "c")}
SEARCHES = (
    (PAIR, Budget()),
    (PAIR, Budget(lost=1)),
    (CHAIN, Budget()),
    (THREE, Budget(lost=1, times=1)),
    (ONE, Budget(crashes=1)),
    (ONE, Budget(lost=1, times=2)),
    (ONE, Budget(times=1, ends=1)),
    (ONE, Budget(late=1, lost=1, times=2)),
    (ONE, Budget(steps=2)),
    (PAIR, Budget(steps=1)),
    (ONE, Budget(steps=1, crashes=1)),
)
LATER = [("b", "j1")]  # where steps of a job begin later, in those with Budget.steps


def worlds(jobs: Jobs, budget: Budget) -> int:
    return explore(jobs, budget, finish_each=20, absent=LATER if budget.steps else ())


def searched() -> int:
    with ProcessPoolExecutor() as processes:
        return sum(processes.map(worlds, *zip(*SEARCHES)))


def measure(place: Path, known: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """known: called with what is known so far."""
    given = [*map(float, sys.argv[1:]), *DEFAULTS[len(sys.argv) - 1 :]]
    found: dict[str, Any] = {}
    took_s: dict[str, float] = {}

    def took(what: str, begun: float) -> None:
        took_s[what] = round(time.monotonic() - begun, 1)
        known(found | {"took_s": took_s})

    begun = time.monotonic()
    simulated = across_simulated.measure(int(given[0]))
    found |= {name: simulated[name] for name in (*OF_BOTH, *OF_SIMULATED)}
    found["simulated"] = simulated
    took("simulated", begun)
    begun = time.monotonic()
    found["states_checked"] = searched()
    took("states_checked", begun)
    with munged(place / "munge") as munge:
        begun = time.monotonic()
        pair = across_nodes.measure(place, munge, given[2])
        found |= {"rl_pair_speedup": pair.pop("rl_pair_speedup"), "pair": pair}
        took("pair", begun)
        begun = time.monotonic()
        real = across_eight.measure(place / "eight", munge, int(given[1]), PROOF)
        found |= {name: simulated[name] + real[name] for name in OF_BOTH}
        found["real"] = real
        took("real", begun)
    return found | {"took_s": took_s}


def main() -> None:
    found = write_as_it_comes("across", measure)
    for name, value in found.items():
        print(f"{name:20} {value}")
    real: dict[str, float] = found["real"]
    of_real = {f"real.{name}": value for name, value in real.items() if name.endswith("_p99")}
    figures = {name: float((found | of_real)[name]) for name in TARGETS}
    print_table(figures, TARGETS, least=["rl_pair_speedup"])
    print(f"real: {real['cores_busy']:g} of {os.cpu_count()} cores were busy. {SAID_OF_REAL}")


if __name__ == "__main__":
    main()
