"""What becomes of NVML's word on a device's work: divided among those who had it, or left out."""

from __future__ import annotations

from typing import Any

from leased import policy
from leased.core.arbiter import Arbiter
from leased.core.events import (
    Closed,
    MemoryChanged,
    Opened,
    Released,
    Requested,
    Tick,
    WorkMeasured,
)
from leased.gpus import nvml_answers
from leased.monitors.work_meter import WorkMeter
from leased.usage.gauge import PARTS, Held, WorkPart, divided
from leased.usage.usage import Usage

S = 1_000_000_000
GPU = "GPU-00000000-0000-0000-0000-000000000000"


def arbiter(*locks: str) -> Arbiter:
    """Tenants 1, 2, ... with these locks; each has 10 bytes of the 100 and wants the device."""
    made = Arbiter({GPU: 100}, policy.make)
    for job, lock in enumerate(locks, 1):
        made.handle(Opened(job, (GPU,), lock, 10 * S), 0)
        made.handle(MemoryChanged(job, GPU, 10), 0)
        made.handle(Requested(job), 0)
    return made


def test_the_one_holder_has_all() -> None:
    a = arbiter("on")
    a.handle(WorkMeasured(GPU, 2 * S, 25, 1000), 2 * S)
    used = a.usage(1, 2 * S)[GPU]
    assert (used.measured_ns, used.busy_ns, used.idle_resident_ns) == (2 * S, S // 2, 3 * S // 2)
    assert used.energy_mj == 1000


def test_one_after_the_other_share_by_their_lease_time() -> None:
    a = arbiter("on", "on")
    a.handle(Released(1, 1), S)
    a.handle(WorkMeasured(GPU, 4 * S, 50, 4000), 4 * S)
    first, second = (a.usage(job, 4 * S)[GPU] for job in (1, 2))
    assert (first.busy_ns, second.busy_ns) == (S // 2, 3 * S // 2)
    assert (first.energy_mj, second.energy_mj) == (1000, 3000)
    # The first neither holds nor waits, and its memory stays; the second holds.
    assert first.idle_resident_ns == 3 * S + S // 2
    assert second.idle_resident_ns == 3 * S // 2


def test_side_by_side_they_share_evenly_and_the_memory_of_each_idles() -> None:
    a = arbiter("auto", "auto")
    a.handle(WorkMeasured(GPU, 4 * S, 75, 800), 4 * S)
    for job in (1, 2):
        used = a.usage(job, 4 * S)[GPU]
        assert (used.lease_ns, used.shared_ns) == (2 * S, 4 * S)
        assert (used.measured_ns, used.busy_ns, used.energy_mj) == (2 * S, 3 * S // 2, 400)
        assert used.idle_resident_ns == S


def measured(locks: str, *weights: int, busy: int = 75) -> list[Usage]:
    """What each of these tenants has had after 4 s, of whose work the driver has said so much."""
    a = arbiter(*locks.split())
    parts = tuple(WorkPart(job, weight) for job, weight in enumerate(weights, 1) if weight)
    a.handle(WorkMeasured(GPU, 4 * S, busy, 800, parts), 4 * S)
    return [a.usage(job, 4 * S)[GPU] for job, _ in enumerate(weights, 1)]


def test_side_by_side_the_lease_is_divided_by_their_work_where_it_is_known() -> None:
    used = measured("auto auto", 60, 20)
    assert [u.lease_ns for u in used] == [3 * S, S]
    assert [u.busy_ns for u in used] == [9 * S // 4, 3 * S // 4]
    assert [u.measured_ns for u in used] == [3 * S, S]
    assert [u.energy_mj for u in used] == [600, 200]
    assert [u.shared_ns for u in used] == [4 * S, 4 * S]
    # Less than the driver can see counts as the least that it sees.
    assert [u.lease_ns for u in measured("auto auto", 0, 49)] == [4 * S // 50, 4 * S * 49 // 50]
    # Nobody has worked, or nobody says: evenly.
    assert [u.lease_ns for u in measured("auto auto", 0, 0)] == [2 * S, 2 * S]


def test_time_alone_is_not_divided_by_work() -> None:
    """The first alone for a second, then the second for three; the first has worked more."""
    a = arbiter("on", "on")
    a.handle(Released(1, 1), S)
    parts = (WorkPart(1, 90), WorkPart(2, 10))
    a.handle(WorkMeasured(GPU, 4 * S, 50, 4000, parts), 4 * S)
    assert [a.usage(job, 4 * S)[GPU].lease_ns for job in (1, 2)] == [S, 3 * S]


def test_no_tenant_has_more_than_the_time_by_the_clock() -> None:
    """The second leaves after a second side by side, in which the first did all the work."""
    found = {
        1: Held(lease_ns=7 * S // 2, clock_ns=4 * S, beside_ns=S),
        2: Held(lease_ns=S // 2, clock_ns=S, beside_ns=S),
    }
    assert divided(found, {1: 99 * PARTS}) == {1: 49 * S // 100, 2: -49 * S // 100}
    # Of 3 s beside others one had 1 s of the clock: it has no more, whatever it did there.
    # The clock that is left when the first has all of its own is divided by the others' work.
    found[1] = Held(S // 3, S, S)
    found[2] = Held(4 * S // 3, 3 * S, 3 * S)
    found[3] = Held(4 * S // 3, 3 * S, 3 * S)
    total = sum(held.lease_ns for held in found.values())
    shifts = divided(found, {1: 100 * PARTS, 2: 3 * PARTS})
    given = {n: held.lease_ns + shifts[n] for n, held in found.items()}
    assert given == {1: S, 2: (total - S) * 3 // 4, 3: total - S - (total - S) * 3 // 4}
    assert divided({1: found[1]}, {1: 5 * PARTS}) == {}


def test_work_of_no_tenant_is_lost() -> None:
    a = arbiter("on")
    a.handle(Released(1, 1), S)
    a.handle(WorkMeasured(GPU, 4 * S, None, 400), 4 * S)
    assert a.usage(1, 4 * S)[GPU].energy_mj == 100
    a.handle(Requested(1), 5 * S)
    a.handle(Closed(1), 6 * S)
    a.handle(WorkMeasured(GPU, 4 * S, 100, 400), 8 * S)
    assert not a.devices[GPU].gauge.had
    a.handle(WorkMeasured("GPU-lost", S, 100, 400), 8 * S)


def test_memory_is_averaged_over_time() -> None:
    """10 bytes for 2 s, then 1 GiB for 2 s of which 100 bytes fit."""
    a = arbiter("on")
    a.handle(MemoryChanged(1, GPU, 1 << 30), 2 * S)
    a.handle(Tick(), 3 * S)
    used = a.usage(1, 4 * S)[GPU]
    assert used.time_ns == 4 * S
    assert used.wanted_kib_ms == (10 * 2 * S + (1 << 30) * 2 * S) // (1024 * 10**6)
    assert used.peak_resident_bytes == 100
    assert used.idle_resident_ns == 0


# -- reading NVML ------------------------------------------------------------------------


def test_the_first_look_says_nothing() -> None:
    meter = WorkMeter()
    assert meter.read(GPU, 50, 1000, 5 * S) is None
    assert meter.read(GPU, 60, 1300, 6 * S) == WorkMeasured(GPU, S, 60, 300)
    assert meter.read(GPU, 60, 1300, 6 * S) is None, "no time has passed"


def test_a_figure_does_not_count_for_a_long_time_before() -> None:
    meter = WorkMeter()
    meter.read(GPU, 50, 1000, 0)
    assert meter.read(GPU, 60, 2000, 5 * S) == WorkMeasured(GPU, 5 * S, None, 1000)
    assert meter.read(GPU, None, None, 6 * S) is None


def test_a_counter_that_began_anew_or_says_what_cannot_be_is_not_believed() -> None:
    meter = WorkMeter()
    meter.read(GPU, None, 1000, 0)
    assert meter.read(GPU, 1, 0, S) == WorkMeasured(GPU, S, 1, None)
    assert meter.read(GPU, 1, 10**12, 2 * S) == WorkMeasured(GPU, S, 1, None)
    assert meter.read(GPU, 1, None, 3 * S) == WorkMeasured(GPU, S, 1, None)
    assert meter.read(GPU, 1, 7, 4 * S) == WorkMeasured(GPU, S, 1, None), "the first again"


def test_energy_that_makes_no_sense_is_unknown() -> None:
    said: Any
    for said, known in ((12, 12), (True, None), (-1, None), ("12", None), (1 << 70, None)):
        answer: dict[str, Any] = {"devices": {GPU: {"processes": [], "energy": said}}}
        assert nvml_answers.seen(answer, GPU, 1).energy_mj == known
