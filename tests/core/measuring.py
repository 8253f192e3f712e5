"""What the driver says of devices' work as the adversary plays it: anything, often or seldom, for a
while or always."""

from __future__ import annotations

import random
from collections.abc import Iterator

from leased.core.arbiter import Arbiter
from leased.core.events import WorkMeasured
from leased.monitors.work_meter import OLD_NS
from leased.usage.gauge import WorkPart
from tests.core.scenario import WORK, Poke

LOOK_MS = 500
MOST = 1 << 32


def measurements(r: random.Random, devices: int, seconds: int) -> Iterator[Poke]:
    """Twice a second in some stretches of time."""
    for _ in range(r.choice((0, 1, 1, 3))):
        device, begin = r.randrange(devices), r.choice((0, r.randint(0, seconds * 1000)))
        kind = r.randrange(MOST)
        for n in range(r.choice((5, 20, 120))):
            amount = kind if r.random() < 0.8 else r.randrange(MOST)
            yield Poke(begin + n * LOOK_MS, WORK, device, amount)


def measured(a: Arbiter, device: str, amount: int, passed: int) -> WorkMeasured:
    """What the amount says of those who hold the device, or just have. passed: since the last time;
    after a long pause nothing is said, as with the daemon."""
    r = random.Random(amount)
    busy = r.choice((None, 0, 3, 50, 100, 100, 100))
    says = r.random() < 0.9
    if passed > OLD_NS:
        return WorkMeasured(device, passed, None, None)
    parts = [
        WorkPart(tenant, r.choice((0, 1, 10, 50, 100)))
        for tenant in a.tenants
        if says and device in a.tenants[tenant].gang and r.random() < 0.8
    ]
    return WorkMeasured(device, passed, busy, r.choice((None, 1000)), tuple(parts))
