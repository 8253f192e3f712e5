"""What the daemons of a large cluster say to each other about jobs on several nodes, simulated.

`make bench NAME=across_size` writes build/bench/across_size.json; `ARGS="64 1000"`: of so many
nodes. The protocol is the daemons' own, on nodes of 10 GPUs that are simulated, as in `across`: one
job of 2 to 64 nodes for each node, which runs for 0.1 to 1 s when it is its turn and wants to again
as soon; or, with `long` behind the number, for 20 to 40 s. Nothing fails. The first turns do not
count.

messages_s, bytes_s: of the cluster; bytes with all headers. node_*: of the node that says and hears
most. handle_us: processor time of an event of the protocol on this machine; with making, proving,
and reading messages (message_us) it is node_cpu, the part of a processor that the busiest node's
daemon needs for this. grant_ms: from when the last member was ready to when the last one ran, by
the number of nodes; tries: how often a job's nodes began to hold for each time that it ran. links:
connections of the node that has most.

With short turns the rates are those of jobs that change hands each second or so. With long ones
what is left is what daemons say while nothing changes: that a job may go on, each second, and to
those that wait, less and less often.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from leased.across.actions import Event, Send
from leased.across.messages import Order, Phase, Report, State
from leased.peers import messages, sealed
from tests.across.fleet import Fleet, Site
from tests.bench import write
from tests.bench.across_simulated import part

S = 1_000_000_000
SIZES = ("8", "64", "250", "1000", "64long", "250long")
SHORT, LONG = (S // 10, S), (20 * S, 40 * S)
WIDEST = 64  # of a job, leased/api/step_fields.py
WARM_S, COUNTED_S = {SHORT: 3, LONG: 60}, {SHORT: 5, LONG: 60}
HEADERS = 66  # bytes of Ethernet, IP and TCP with time stamps, for a message that goes alone
REPORT = Report("1234567", 1 << 60, 4, State.RUNNING, 1 << 60, True, True, latest=1 << 20)


class Counted(Fleet):
    """A fleet in which nothing fails, and which is counted from reset() on."""

    def __init__(self, nodes: int, turn: tuple[int, int]):
        self.now = 0
        self.reset()
        super().__init__(1, nodes, across=nodes, alone=nodes, widest=WIDEST, gpus=10, turn=turn)

    def reset(self) -> None:
        self.bytes = self.holds = 0
        self.of_node: Counter[str] = Counter()
        self.links: defaultdict[str, set[str]] = defaultdict(set)
        self.by_width: defaultdict[int, list[int]] = defaultdict(list)
        self.handled, self.cpu_s = 0, 0.0
        self.begun, self.grants, self.messages = self.now, 0, 0

    def _trouble(self) -> None:
        self.troubled = False

    def _send(self, site: Site, action: Send) -> None:
        said = action.message
        self.bytes += len(messages.to_bytes(said)) + sealed.LENGTH + sealed.TAG + HEADERS
        self.of_node.update((site.name, action.node))
        self.links[site.name].add(action.node)
        if isinstance(said, Order) and said.phase == Phase.HOLD and said.round == 1:
            self.holds += said.job in self.jobs and action.node == self.jobs[said.job][1]
        super()._send(site, action)

    def tell(self, site: Site, event: Event) -> None:
        began = time.process_time()
        done = site.daemon.handle(event, site.show(self.now)) if site.daemon else []
        self.cpu_s += time.process_time() - began
        self.handled += 1
        self._do_all(site, done)

    def _note_grant(self, job: str) -> None:
        before = len(self.grant_ns)
        super()._note_grant(job)
        self.by_width[len(self.jobs[job])] += self.grant_ns[before:]


def message_us() -> float:
    """Processor time to make and seal a message, and to prove and read it."""
    seal, opens, count = sealed.Seal(bytes(32)), sealed.Seal(bytes(32)), 5000
    began = time.process_time()
    for _ in range(count):
        frame = seal.seal(messages.to_bytes(REPORT))
        messages.of_bytes(opens.opened(frame[sealed.LENGTH :]))
    return (time.process_time() - began) / count * 1e6


def of_size(nodes: int, turn: tuple[int, int], each_us: float) -> dict[str, Any]:
    fleet, counted_s = Counted(nodes, turn), COUNTED_S[turn]
    fleet.run(lambda: fleet.now >= WARM_S[turn] * S)
    fleet.reset()
    fleet.run(lambda: fleet.now >= fleet.begun + counted_s * S)
    busiest, said = fleet.of_node.most_common(1)[0]
    handle_us = fleet.cpu_s / fleet.handled * 1e6
    widths = sorted(width for width, found in fleet.by_width.items() if len(found) > 20)
    return {
        "jobs": len(fleet.jobs),
        "grants_s": fleet.grants / counted_s,
        "messages_a_grant": round(fleet.messages / fleet.grants, 1),
        "messages_s": fleet.messages / counted_s,
        "bytes_s": fleet.bytes // counted_s,
        "node_messages_s": said / counted_s,
        "members_of_the_node": len(fleet.sites[busiest].gpus),
        "handle_us": round(handle_us, 1),
        "message_us": round(each_us, 1),
        # A message is half made and half read, and about as many local events come with them.
        "node_cpu": round(said / counted_s * (each_us / 2 + handle_us) / 1e6, 4),
        "links": max(map(len, fleet.links.values())),
        "tries": round(fleet.holds / fleet.grants, 2),
        "grant_ms": {
            str(width): {"p50": part(found, 0.5), "p99": part(found, 0.99), "of": len(found)}
            for width in widths
            for found in [fleet.by_width[width]]
        },
    }


def measure(_: Path) -> dict[str, Any]:
    sizes = sys.argv[1:] or SIZES
    each_us = message_us()
    found = {}
    for size in sizes:
        nodes, turn = int(size.removesuffix("long")), LONG if "long" in size else SHORT
        found[size] = of_size(nodes, turn, each_us)
        print(size, found[size], flush=True)
    return found


if __name__ == "__main__":
    write("across_size", measure)
