"""What classes do for a service, and leave to a batch job: `make bench NAME=classes`.

Times are as in tests/bench/slices.py: as on the card, on a model whose kernels take four times as
long; `memory_back_s` and `memory_link_s` are the clock's. To build/bench/classes.json.

`alone_*`, `p50_ms`, `p99_ms`, `mean_ms`: a service, 3.1 ms of work every 20 ms on average, alone
without gpu-lease, and with class:online beside a job with class:offline that waits for each of its
kernels of 2.2 ms; `offline_of_leftover`: what that job gets, of what it gets beside the service
with the driver's slices. `by`: the same with those, and with MuxFlow's controller. `contended`: all
of that on a model on which jobs slow each other down, and by `slices`, which is ours without a
controller; `offline_of_duty` is what the offline job gets, of what it gets by slices in that part
of the time in which it may run: what is to be compared where protection takes time away.
`long_kernels`:
beside kernels of 300 ms. `memory_back_s`: how much longer an online job's sweep over all its memory
takes if an offline one, in the middle of a kernel of some seconds, has pushed it out, the median;
`memory_link_s`: what the link needs for the bytes that move then; `wrong`: words of the offline job
that were not what they should be at its end.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from leased.api.client import ask
from leased.classes.pulse import SWITCH_NS
from tests.bench import write
from tests.bench.handoff import moved
from tests.bench.slices import (
    BATCH_MS,
    LEARNS_S,
    LONG_MS,
    MIB,
    ORDINARY,
    SCALE,
    SERVICE_MS,
    SLOW,
    Beside,
    Job,
    Site,
    beside,
    end,
    served,
    serves,
    shared,
    urgent,
    waits_of,
)
from tests.emugpu.programs import IMPORTS, finish, go_on, line
from tests.emugpu.server import model_of
from tests.slurm.processes import wait_until
from tests.support.together import zip_strict

ALLOWED = '[classes]\nmay_online = ["all"]\n'
ONLINE, OFFLINE = Job(options="class:online"), Job(options="class:offline")
SIZE, TIMES = 160 * MIB, 5  # of 256
CONTENDED, CONTENDED_S = "emu-h200-contended", 30.0  # and until the daemon has learnt there
BY = 'controller = "{}"\n'
# A burst of the service may take as much longer for switches as on the card: what the daemon allows
# for one is a time, and here both take four times as long.
FOR_SWITCHES = f"[limits]\nonline_slowdown = {SWITCH_NS / (SERVICE_MS * 1e6):.3f}\n"

# Sweeps over its memory when it is told to, and says how long that took.
SWEEPS = f"""
import time
setup()
n = {SIZE} // 4; p = ok(d.cuMemAlloc({SIZE})); ok(launch("fill", p, n, 1)); ok(d.cuCtxSynchronize())
say("ready")
for _ in sys.stdin:
    begin = time.monotonic()
    ok(launch("add", p, n, 1, 1)); ok(d.cuCtxSynchronize())
    say(time.monotonic() - begin)
"""
# Kernels of some seconds until it is told to end; then how many words are wrong.
WORKS = f"""
import select
import numpy as np
setup()
n = {SIZE} // 4; p = ok(d.cuMemAlloc({SIZE})); ok(launch("fill", p, n, 7)); ok(d.cuCtxSynchronize())
say("ready"); wait(); added = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    ok(launch("add", p, n, 1, 60)); added += 60; ok(d.cuCtxSynchronize())
out = np.zeros(n, dtype=np.uint32); ok(d.cuMemcpyDtoH(out.ctypes.data, p, {SIZE}))
want = np.arange(n, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(7 + added)
say("wrong", int((out != want).sum()))
"""


def link_bytes_s() -> float:
    """Each way while both are used, of the model."""
    model = model_of(ORDINARY)
    return model["link_mib_s"] * model["duplex"] * MIB


class Measured(NamedTuple):
    """duty: of the offline job, the mean."""

    found: Beside
    duty: float


def beside_online(site: Site, kernel_ms: float) -> Measured:
    """An online service beside an offline job that waits for each of its kernels. What is measured
    of that job begins when the daemon has learnt, so it is another one."""
    service = serves(site, ONLINE)
    first = site.batch(OFFLINE, kernel_ms * SCALE, 1)
    time.sleep(site.learns_s)
    end(first)
    process, duties = site.batch(OFFLINE, kernel_ms * SCALE, 1), [duty(site)]
    while service.poll() is None:
        time.sleep(0.25)
        duties.append(duty(site))
    waits = waits_of(site, service)
    go_on(process)
    kernels, us = map(float, finish(process).split())
    return Measured(Beside(waits, kernels / us * 1e6 * SCALE), statistics.fmean(duties))


def duty(site: Site) -> float:
    """Of the job that came last."""
    return min(float(one["duty"]) for one in tenant(site, site.jobs)["slices"].values())


def figures(found: Beside, leftover: float) -> dict[str, float]:
    return {
        "p50_ms": found.service.p50,
        "p99_ms": found.service.p99,
        "mean_ms": found.service.mean,
        "offline_of_leftover": found.batch / leftover,
    }


def sweep(process: Any) -> float:
    go_on(process)
    return float(line(process))


def tenant(site: Site, job: int) -> Any:
    assert site.leased is not None
    tenants = ask(site.leased.admin_socket, {"op": "status"})["tenants"]
    return next(t for t in tenants if t["job_id"] == job)


def holds(site: Site, job: int) -> bool:
    return bool(tenant(site, job)["state"] == "holds")


def memory_back(site: Site) -> dict[str, Any]:
    swaps = "memory:swap,tq:5m,class:{}".format
    online = site.start(Job(options=swaps("online")), sys.executable, "-c", IMPORTS + SWEEPS)
    resident = statistics.median(sweep(online) for _ in range(TIMES))
    offline_job = site.jobs + 1
    offline = site.start(Job(options=swaps("offline")), sys.executable, "-c", IMPORTS + WORKS)
    go_on(offline)
    took, links = [], []
    for _ in range(TIMES):
        wait_until("the offline job to have the device", lambda: holds(site, offline_job))
        out, into = moved(site.gpu)
        took.append(sweep(online) - resident)
        bytes_out, bytes_in = (b - a for a, b in zip_strict((out, into), moved(site.gpu)))
        links.append(max(bytes_out, bytes_in) / link_bytes_s())
    go_on(offline)
    wrong = finish(offline).split()[-1]
    finish(online)
    back, link = statistics.median(took), statistics.median(links)
    return {"memory_back_s": back, "memory_link_s": link, "wrong": int(wrong)}


def by_controller(work: Path, by: str, model: str = SLOW, learns_s: float = LEARNS_S) -> Measured:
    with shared(work / by, model, config=ALLOWED + BY.format(by)) as site:
        site.learns_s = learns_s
        return beside_online(site, BATCH_MS)


def contended(work: Path) -> dict[str, Any]:
    """The same figures for each, on a model with contention."""
    with shared(work / "bare", CONTENDED, with_lease=False) as site:
        alone = served(site, Job())
        driver = beside(site, BATCH_MS, Job(), Job())
    found = {
        by: by_controller(work, by, CONTENDED, CONTENDED_S) for by in ("slices", "feedback", "pid")
    }
    by_slices = found["slices"].found.batch
    return {
        "alone": alone._asdict(),
        "driver": figures(driver, driver.batch),
        **{
            by: figures(one.found, driver.batch)
            | {"duty": one.duty, "offline_of_duty": one.found.batch / by_slices / one.duty}
            for by, one in found.items()
        },
    }


def measure(work: Path) -> dict[str, Any]:
    with shared(work / "bare", SLOW, with_lease=False) as site:
        alone = served(site, Job())
        driver = beside(site, BATCH_MS, Job(), Job())
    with shared(work / "ours", SLOW, config=FOR_SWITCHES + ALLOWED) as site:
        ours, measured = beside_online(site, BATCH_MS)
        long, _ = beside_online(site, LONG_MS)
    by_slices, pid = (by_controller(work, by).found for by in ("slices", "pid"))
    with shared(work / "memory", ORDINARY, config=ALLOWED) as site:
        back = memory_back(site)
    return {
        "alone_p50_ms": alone.p50,
        "alone_p99_ms": alone.p99,
        "alone_mean_ms": alone.mean,
        **figures(ours, driver.batch),
        "duty": measured,
        "by": {
            "driver": figures(driver, driver.batch),
            "slices": figures(by_slices, driver.batch),
            "pid": figures(pid, driver.batch),
        },
        "contended": contended(work / "contended"),
        "long_kernels": {"p50_ms": long.service.p50, "p99_ms": long.service.p99},
        **back,
    }


def main() -> int:
    urgent()
    found = write("classes", measure)
    rounded = json.loads(json.dumps(found), parse_float=lambda text: round(float(text), 4))
    print("On the emulated GPU:", json.dumps(rounded))
    return 0


if __name__ == "__main__":
    sys.exit(main())
