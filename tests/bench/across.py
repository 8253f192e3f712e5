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

real, rl_pair_speedup: of two nodes with real daemons (tests/bench/across_nodes.py).

`ARGS="GRANTS SECONDS"`: how many grants are simulated (a thousand take half a minute of a
processor), and for how long the real ones run (some eight a second).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.across.fleet import Fleet
from tests.across.search import explore
from tests.across.world import Budget
from tests.bench import across_nodes, write

S = 1_000_000_000
WAITS = 600 * S
GRANTS = 20_000
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


def measure(place: Path) -> dict[str, Any]:
    grants = int(sys.argv[1]) if len(sys.argv) > 1 else GRANTS
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
    real = across_nodes.measure(place, seconds)
    fleet = Fleet(seed=1)
    fleet.run(lambda: fleet.grants >= grants)
    fleet.calm()
    deadlocks = fleet.stuck_after(WAITS)
    return {
        "grants": fleet.grants,
        "simulated_s": fleet.now // S,
        "half_gangs": fleet.half_gangs,
        "deadlocks": deadlocks,
        "grant_ms_p50": part(fleet.grant_ns, 0.5),
        "grant_ms_p99": part(fleet.grant_ns, 0.99),
        "skew_ms_p50": part(fleet.skew_ns, 0.5),
        "skew_ms_p99": part(fleet.skew_ns, 0.99),
        "messages_a_grant": round(fleet.messages / fleet.grants, 1),
        "lost": fleet.lost,
        "link_drops": fleet.drops,
        "daemon_deaths": fleet.deaths,
        "states_checked": sum(
            explore(jobs, budget, finish_each=20, absent=LATER if budget.steps else ())
            for jobs, budget in SEARCHES
        ),
        "rl_pair_speedup": real.pop("rl_pair_speedup"),
        "real": real,
    }


def main() -> None:
    for name, value in write("across", measure).items():
        print(f"{name:20} {value}")


if __name__ == "__main__":
    main()
