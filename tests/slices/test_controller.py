"""The controller of slices with a model of the GPU's scheduler: what jobs get, and how fast."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from leased.slices import controller, without_shares
from leased.slices.controller import Controller
from leased.slices.job import ALWAYS, AS_MADE, LONG_US, SHORT_US, TURN_US, Choice, Seen
from tests.slices.model import Device, Job, Service, Told, Window
from tests.support.together import pairwise, zip_strict

BATCH_US = 2200.0


@dataclass
class Node:
    """Jobs on one device under a controller that is told what each has had, in whole percents; of
    jobs with shares as NVML tells it on a card: where several have work an even part of each, or
    all of one. late: it tells of the time before the last look. shares: request and limit, by
    job."""

    jobs: dict[str, Job]
    shares: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    late: bool = False
    change: Callable[[Seen], Seen] = lambda seen: seen
    deaf: str = ""  # the job that keeps the driver's slices whatever it is told
    choices: list[dict[str, Choice]] = field(default_factory=list)
    before: Mapping[str, Window] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.controller = Controller()
        self.device = Device(self.jobs)
        self.names = dict(enumerate(self.jobs))

    def _seen(self, name: str, now: float, windows: Mapping[str, Window]) -> Seen:
        window = windows.get(name)
        part = round(self._part(name, windows), 2) if window else None
        holds = self.jobs[name].until_us > now
        request, limit = self.shares.get(name, (0.0, 1.0))
        wanted = window.wanted if window else None
        return self.change(Seen(part, True, holds, request=request, limit=limit, wanted=wanted))

    def _part(self, name: str, windows: Mapping[str, Window]) -> float:
        there = [each for each, window in windows.items() if window.ran > 0]
        if not self.shares or len(there) < 2 or name not in there:
            return windows[name].ran
        if len(self.choices) % 2:
            return 1 / len(there)
        return 0.99 if there[len(self.choices) // 2 % len(there)] == name else 0.0

    def look(self, now: float, windows: Mapping[str, Window]) -> dict[str, Told]:
        said, self.before = (self.before if self.late else windows), windows
        seen = {number: self._seen(name, now, said) for number, name in self.names.items()}
        chosen = self.controller.look(int(now * 1000), seen)
        self.choices.append({self.names[number]: choice for number, choice in chosen.items()})
        told = {n: choice for n, choice in self.choices[-1].items() if n != self.deaf}
        return {n: Told(c.slice_us, c.duty / 1000, c.begins / 1000) for n, c in told.items()}

    def run(self, seconds: float = 30.0, last: float = 10.0) -> dict[str, float]:
        """What each job has had of the last seconds."""
        windows = self.device.play(seconds, self.look)[-int(2 * last) :]
        return {name: sum(window[name] for window in windows) / len(windows) for name in self.jobs}

    def changes(self, last: int) -> int:
        """How often a slice or a duty was changed in so many of the last looks."""
        chosen = [{n: choice.runs for n, choice in one.items()} for one in self.choices[-last:]]
        return sum(a != b for a, b in pairwise(chosen))


def alone(job: Job) -> float:
    """The part of the time in which a job runs that is alone."""
    return job.kernel_us / (job.kernel_us + job.pause_us)


late = pytest.mark.parametrize("late", [False, True], ids=["", "late"])


@late
@pytest.mark.parametrize("kernel_us", [100.0, BATCH_US, 300_000.0])
def test_bursts_are_answered_as_fast_as_alone(kernel_us: float, late: bool) -> None:
    service, batch = Service(3100), Job(kernel_us)
    node = Node({"service": service, "batch": batch}, late=late)
    node.run(5)
    service.latencies.clear()
    parts = node.run(30)
    assert service.percentile(0.99) < 1.08 * 3100
    assert parts["batch"] > 0.98 * (1 - parts["service"])
    assert node.choices[-1]["service"] == Choice(LONG_US, ALWAYS, without_shares.BURSTS)
    assert node.choices[-1]["batch"] == Choice(SHORT_US, ALWAYS, without_shares.GIVES_WAY)
    assert node.changes(50) == 0


@late
def test_longer_slices_where_all_always_have_work(late: bool) -> None:
    node = Node({"a": Job(BATCH_US), "b": Job(100)}, late=late)
    parts = node.run()
    assert sum(parts.values()) > 0.95
    assert all(choice.slice_us == TURN_US for choice in node.choices[-1].values())
    assert node.changes(40) == 0


@late
@pytest.mark.parametrize("pause_us", [5.0, 20.0])
@pytest.mark.parametrize("kernel_us", [100.0, 500.0, BATCH_US, 4000.0])
def test_who_waits_for_each_kernel_is_not_taken_for_one_that_answers(
    kernel_us: float, pause_us: float, late: bool
) -> None:
    """The batch job keeps what it has with the driver's slices."""
    jobs = {"a": Job(kernel_us, pause_us), "b": Job(BATCH_US)}
    drivers = Device({name: replace(job) for name, job in jobs.items()}).play(5)[-1]
    parts = Node(jobs, late=late).run(90, 30)
    for name in parts:
        assert parts[name] > 0.9 * drivers[name]


MIXES: dict[str, Callable[[], dict[str, Job]]] = {
    "a service and a batch job": lambda: {"s": Service(3100), "b": Job(BATCH_US)},
    "a small service and two batch jobs": lambda: {
        "s": Service(310), "a": Job(BATCH_US), "b": Job(100),
    },
    "two services and a batch job": lambda: {
        "s": Service(310), "t": Service(3100, seed=2), "b": Job(BATCH_US),
    },
    "two services": lambda: {"s": Service(3100), "t": Service(5000, seed=2)},
    "a large service and a small one": lambda: {
        "s": Service(13_000), "t": Service(310, seed=2),
    },
    "a service and one that waits for each kernel": lambda: {"s": Service(3100), "c": Job(100, 10)},
    "a service, a batch job and one that waits": lambda: {
        "s": Service(3100), "b": Job(BATCH_US), "c": Job(500, 20),
    },
    "a service that asks once a second": lambda: {
        "s": Service(5000, every_us=1e6), "a": Job(BATCH_US), "b": Job(BATCH_US),
    },
}  # fmt: skip


@functools.cache
def p99_with_the_drivers_slices(mix: str) -> dict[str, float]:
    """Of each service."""
    made = MIXES[mix]()
    Device(made).play(60)
    return {n: job.percentile(0.99) for n, job in made.items() if isinstance(job, Service)}


@late
@pytest.mark.parametrize("mix", MIXES)
def test_nobodys_p99_is_worse_than_with_the_drivers_slices(mix: str, late: bool) -> None:
    chosen = MIXES[mix]()
    Node(chosen, late=late).run(60)
    for name, before in p99_with_the_drivers_slices(mix).items():
        after = chosen[name]
        assert isinstance(after, Service)
        assert after.percentile(0.99) <= 1.03 * before


def test_one_that_begins_to_saturate_loses_its_long_slice() -> None:
    """However often it does so, it does not keep the other from the device for long."""
    node = Node({"a": Job(BATCH_US), "b": Job(BATCH_US)})
    waits = []
    for _ in range(10):
        node.jobs["a"].pause_us = 50_000
        node.run(4)
        node.jobs["a"].pause_us = 0
        node.choices.clear()
        node.run(4)
        waits.append(sum(choice["a"].slice_us == LONG_US for choice in node.choices))
    assert max(waits) <= 3
    assert sum(waits[-4:]) <= 3


SHARES = [(0.1, 0.9), (0.5, 0.5), (0.7, 0.3)]
KERNELS = [(100.0, BATCH_US), (100.0, 20_000.0), (BATCH_US, 20_000.0)]


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("shares", SHARES)
def test_shares_of_jobs_that_always_have_work(
    shares: tuple[float, float], kernels: tuple[float, float]
) -> None:
    jobs = {n: Job(kernel_us) for n, kernel_us in zip_strict("ab", kernels)}
    node = Node(jobs, {n: (part, 1.0) for n, part in zip_strict("ab", shares)})
    parts = node.run(15)
    together = sum(parts.values())
    assert together > 0.96
    for name, share in zip_strict("ab", shares):
        assert parts[name] / together == pytest.approx(share, abs=0.01)
    assert node.changes(15) == 0
    assert not node.controller.obedience.caught


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("both", [False, True])
def test_shares_of_jobs_that_wait_for_each_kernel(
    shares: tuple[float, float], kernels: tuple[float, float], both: bool
) -> None:
    """By what they get done of what they would do alone."""
    jobs = {"a": Job(kernels[0], 20), "b": Job(kernels[1], 20 if both else 0)}
    node = Node(jobs, {n: (part, 1.0) for n, part in zip_strict("ab", shares)})
    parts = node.run(15)
    done = {name: part / alone(jobs[name]) for name, part in parts.items()}
    assert sum(done.values()) > 0.96
    for name, share in zip_strict("ab", shares):
        assert done[name] / sum(done.values()) == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("pause_us", [0.0, 20.0])
@pytest.mark.parametrize("shares", [(0.2, 0.3, 0.5), (0.5, 0.3, 0.2)])
def test_shares_of_three(shares: tuple[float, ...], pause_us: float) -> None:
    jobs = {n: Job(us, pause_us) for n, us in zip_strict("abc", (100, BATCH_US, 20_000))}
    node = Node(jobs, {n: (part, 1.0) for n, part in zip_strict("abc", shares)})
    parts = node.run(15)
    done = {name: part / alone(jobs[name]) for name, part in parts.items()}
    assert sum(done.values()) > 0.96
    for name, share in zip_strict("abc", shares):
        assert done[name] / sum(done.values()) == pytest.approx(share, abs=0.01)


@late
def test_what_a_job_does_not_use_others_have(late: bool) -> None:
    service = Service(3100)
    node = Node(
        {"service": service, "batch": Job(BATCH_US)},
        {"service": (0.5, 1.0), "batch": (0.5, 1.0)},
        late,
    )
    node.run(10)
    service.latencies.clear()
    parts = node.run(20)
    assert parts["batch"] > 0.98 * (1 - parts["service"])
    assert service.percentile(0.99) < 1.08 * 3100


@pytest.mark.parametrize("limit", [0.05, 0.3, 0.6])
@pytest.mark.parametrize(("kernel_us", "pause_us"), [(100, 0), (100, 20), (BATCH_US, 20)])
def test_a_limit_counts_also_alone(limit: float, kernel_us: float, pause_us: float) -> None:
    job = Job(kernel_us, pause_us)
    node = Node({"a": job, "gone": Job(100, until_us=0)}, {"a": (0.0, limit)})
    assert node.run(12)["a"] / alone(job) == pytest.approx(limit, abs=0.01)


@late
def test_one_that_uses_less_than_its_limit_is_not_kept_waiting(late: bool) -> None:
    service = Service(3100)
    node = Node({"service": service}, {"service": (0.0, 0.5)}, late)
    node.run(5)
    service.latencies.clear()
    node.run(20)
    assert service.percentile(0.99) < 1.01 * 3100


@late
def test_who_waits_for_something_else_between_kernels_has_its_part(late: bool) -> None:
    """It leaves half of its window, and would have half of the device without one."""
    jobs = {"a": Job(10_000, 10_000), "b": Job(BATCH_US)}
    node = Node(jobs, {"a": (0.3, 1.0), "b": (0.7, 1.0)}, late)
    done = {name: part / alone(jobs[name]) for name, part in node.run(60, 20).items()}
    assert done["a"] == pytest.approx(0.3, abs=0.03)
    assert done["b"] == pytest.approx(0.7, abs=0.03)


@late
def test_one_that_falls_idle_gives_its_part_away_and_has_it_back(late: bool) -> None:
    node = Node({"a": Job(BATCH_US), "b": Job(BATCH_US)}, {"a": (0.6, 1.0), "b": (0.4, 1.0)}, late)
    node.run(5)
    node.jobs["a"].ready_us = node.device.now + 12e6
    assert node.run(12, 8)["b"] > 0.96
    assert node.run(10, 7)["a"] == pytest.approx(0.6, abs=0.02)


@late
def test_a_limit_beside_others(late: bool) -> None:
    jobs = {"a": Job(BATCH_US), "b": Job(BATCH_US)}
    parts = Node(jobs, {"a": (0.2, 0.3)}, late).run()
    assert parts["a"] == pytest.approx(0.3, abs=0.02)
    assert sum(parts.values()) > 0.93
    jobs = {"a": Job(BATCH_US), "b": Job(BATCH_US)}
    parts = Node(jobs, {"a": (0.0, 0.3), "b": (0.2, 0.4)}, late).run()
    assert parts["a"] == pytest.approx(0.3, abs=0.03)
    assert parts["b"] == pytest.approx(0.4, abs=0.03)


def test_a_job_without_a_share_has_what_is_left() -> None:
    parts = Node({"a": Job(BATCH_US), "b": Job(BATCH_US)}, {"a": (0.8, 1.0)}).run()
    assert parts["a"] / sum(parts.values()) == pytest.approx(0.9, abs=0.01)


def test_a_job_that_comes_finds_the_drivers_slices() -> None:
    node = Node({"service": Service(3100), "a": Job(BATCH_US)})
    node.run(5)
    assert node.choices[-1]["a"].slice_us == SHORT_US
    seen = {n: Seen(0.4, True, True) for n in node.names} | {7: Seen(None, True, True)}
    chosen = node.controller.look(10**11, seen)
    assert {choice.slice_us for choice in chosen.values()} == {AS_MADE}
    seen[7] = Seen(0.2, True, True)
    assert {c.slice_us for c in node.controller.look(10**11, seen).values()} == {AS_MADE}


def test_what_is_not_known_or_not_controlled_is_as_the_driver_made_it() -> None:
    for spoilt, why in (
        (lambda seen: replace(seen, part=None), controller.NOT_KNOWN),
        (lambda seen: replace(seen, controlled=False), controller.NOT_CONTROLLED),
    ):
        node = Node({"service": Service(3100), "a": Job(BATCH_US)}, change=spoilt)
        node.run(5)
        for chosen in node.choices:
            assert set(chosen.values()) == {Choice(AS_MADE, ALWAYS, why)}


@late
def test_a_job_that_does_not_do_what_it_is_told_is_named(late: bool) -> None:
    """While nobody else has work: else NVML does not say whose the device does."""
    idle = Job(100, ready_us=1e12)
    shares = {"a": (0.8, 1.0), "b": (0.2, 0.3)}
    node = Node({"a": idle, "b": Job(BATCH_US)}, shares, late, deaf="b")
    node.run(10)
    assert node.choices[-1]["b"] == Choice(AS_MADE, ALWAYS, controller.DISOBEYS)
    node = Node({"b": Job(BATCH_US)}, {"b": (0, 0.2)}, late, deaf="b")
    node.run(10)
    assert node.choices[-1]["b"].why == controller.DISOBEYS


def test_several_processes_that_always_have_work_keep_the_drivers_slices() -> None:
    """Short ones would have them take turns among themselves."""
    node = Node({"service": Service(3100), "a": Job(BATCH_US)})
    node.change = lambda seen: replace(seen, processes=2)
    node.run(10)
    assert {chosen["a"].slice_us for chosen in node.choices} == {AS_MADE}


def test_a_clock_that_steps_back_loses_nothing() -> None:
    node = Node({"service": Service(3100), "a": Job(BATCH_US)})
    look = node.look
    node.look = lambda now, windows: look(now - 3e6 if now > 4e6 else now, windows)  # type: ignore[method-assign]
    node.run(12)
    assert node.choices[-1]["service"].slice_us == LONG_US
