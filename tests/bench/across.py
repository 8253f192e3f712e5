"""Jobs on several nodes, in simulated time and with real daemons.

`make bench NAME=across` writes build/bench/across.json.

64 jobs on 8 nodes of 8 GPUs each: 40 of 2 to 8 nodes and 24 on one. The protocol is the daemons'
own (leased/across); nodes, GPUs and the network are simulated (tests/across/fleet.py). A message
takes 0.1 ms and a little more, links between two nodes drop for 1 to 10 s, single messages are lost
or come twice, daemons die and start again, and clocks differ by minutes, in their speed too. What
is taken back or stopped takes 0.2 to 2 ms.

grants: how often a job on several nodes began to run on all of them. half_gangs: moments at which a
member ran while another job could have GPUs of another member. deadlocks: jobs that in the end,
with nothing failing any more, did not run within WAITS. grant_ms: from when its last member was
ready to when the last one ran, with taking back what was lent. skew_ms: between the first member
and the last one being told to stop. states_checked: worlds of small clusters that were gone
through (tests/across/search.py).

real: of the same number of jobs and nodes with real daemons, each in a network namespace of its
own (tests/bench/across_eight.py). pair, rl_pair_speedup: of two nodes with real programs on
emulated GPUs (tests/bench/across_nodes.py).

`ARGS="GRANTS REAL SECONDS"`: how many grants are simulated (a thousand take some 5 s of a
processor), how many are real, and for how long the pair runs. Each part is written when it is
there.

`ARGS=million` simulates a million grants and nothing else, which takes 1.5 hours of a processor;
how far it is stands in build/bench/across_million.json all the time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.across.fleet import Fleet
from tests.across.search import explore
from tests.across.world import Budget
from tests.bench import across_eight, across_nodes, write_as_it_comes
from tests.support.nodes import munged

S = 1_000_000_000
WAITS = 600 * S
DEFAULTS = (3_000, 2_000, 15.0)
MILLION, EACH = 1_000_000, 10_000
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


def part(values: list[int], of_all: float) -> float:
    """The value in ms below which so many of all (ns) are."""
    return round(sorted(values)[int(of_all * (len(values) - 1))] / 1e6, 3)


def simulated(fleet: Fleet, grants: int) -> dict[str, Any]:
    """What has come of so many grants."""
    fleet.run(lambda: fleet.grants >= grants)
    return {
        "grants": fleet.grants,
        "simulated_s": fleet.now // S,
        "half_gangs": fleet.half_gangs,
        "grant_ms_p50": part(fleet.grant_ns, 0.5),
        "grant_ms_p99": part(fleet.grant_ns, 0.99),
        "skew_ms_p50": part(fleet.skew_ns, 0.5),
        "skew_ms_p99": part(fleet.skew_ns, 0.99),
        "messages_a_grant": round(fleet.messages / fleet.grants, 1),
        "lost": fleet.lost,
        "link_drops": fleet.drops,
        "daemon_deaths": fleet.deaths,
    }


def deadlocks(fleet: Fleet) -> int:
    fleet.calm()
    return fleet.stuck_after(WAITS)


def searched() -> int:
    return sum(
        explore(jobs, budget, finish_each=20, absent=LATER if budget.steps else ())
        for jobs, budget in SEARCHES
    )


def measure(place: Path, known: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """known: called with what is known so far."""
    given = [*map(float, sys.argv[1:]), *DEFAULTS[len(sys.argv) - 1 :]]
    fleet = Fleet(seed=1)
    found = simulated(fleet, int(given[0]))
    found["deadlocks"] = deadlocks(fleet)
    known(found)
    found["states_checked"] = searched()
    known(found)
    with munged(place / "munge") as munge:
        pair = across_nodes.measure(place, munge, given[2])
        found |= {"rl_pair_speedup": pair.pop("rl_pair_speedup"), "pair": pair}
        known(found)
        found["real"] = across_eight.measure(place / "eight", munge, int(given[1]))
    return found


def million(_: Path, known: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    fleet = Fleet(seed=2)
    found: dict[str, Any] = {}
    for grants in range(EACH, MILLION + 1, EACH):
        found = simulated(fleet, grants)
        known(found)
    return found | {"deadlocks": deadlocks(fleet)}


def main() -> None:
    if sys.argv[1:] == ["million"]:
        found = write_as_it_comes("across_million", million)
    else:
        found = write_as_it_comes("across", measure)
    for name, value in found.items():
        print(f"{name:20} {value}")


if __name__ == "__main__":
    main()
