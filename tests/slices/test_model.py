"""The model gives what was measured on an H200, within what a model of a few lines can."""

from __future__ import annotations

import pytest

from tests.slices.model import MADE_US, Device, Job, Service

SERVICE_US, BATCH_US = 3100.0, 2200.0


@pytest.mark.parametrize(
    ("slice_us", "of_alone"),
    [(1000, 0.81), (2000, 0.90), (4000, 0.96), (5000, 0.96), (10000, 0.985)],
)
def test_what_two_saturating_jobs_get_done_together(slice_us: float, of_alone: float) -> None:
    jobs: dict[str, Job] = {name: Job(BATCH_US, slice_us=slice_us) for name in "ab"}
    parts = Device(jobs).play(10)[-1]
    assert sum(parts.values()) == pytest.approx(of_alone, abs=0.04)


@pytest.mark.parametrize(("part", "measured"), [(0.1, 0.103), (0.3, 0.299)])
def test_slices_in_proportion_are_shares(part: float, measured: float) -> None:
    jobs = {"a": Job(100, slice_us=10_000 * part), "b": Job(BATCH_US, slice_us=10_000 * (1 - part))}
    parts = Device(jobs).play(10)[-1]
    assert parts["a"] / sum(parts.values()) == pytest.approx(measured, abs=0.01)


@pytest.mark.parametrize(
    ("slices", "p99_ms"), [((MADE_US, MADE_US), 5.98), ((20_000, 200), 3.61), ((20_000, 50), 3.54)]
)
@pytest.mark.parametrize("kernel_us", [BATCH_US, 300_000.0])
def test_a_service_beside_a_saturating_job(
    slices: tuple[float, float], p99_ms: float, kernel_us: float
) -> None:
    service = Service(SERVICE_US, slice_us=slices[0])
    batch = Job(kernel_us, slice_us=slices[1])
    parts = Device({"service": service, "batch": batch}).play(20)[-1]
    # On the GPU a request takes 0.16 ms more than its kernels.
    assert service.percentile(0.99) / 1000 + 0.16 == pytest.approx(p99_ms, rel=0.08)
    assert parts["batch"] > 0.99 * (1 - parts["service"] - 0.02)


@pytest.mark.parametrize(
    ("slice_us", "p50_ms", "p99_ms"), [(2000, 1.69, 2.75), (4000, 2.81, 4.57), (10_000, 6.38, 10.7)]
)
def test_what_longer_slices_cost_a_third(slice_us: float, p50_ms: float, p99_ms: float) -> None:
    third = Service(310)
    Device({"third": third} | {n: Job(BATCH_US, slice_us=slice_us) for n in "ab"}).play(30)
    assert third.percentile(0.5) / 1000 == pytest.approx(p50_ms, rel=0.2)
    assert third.percentile(0.99) / 1000 == pytest.approx(p99_ms, rel=0.08)


def test_a_job_that_waits_for_each_kernel_gives_its_slices_away() -> None:
    jobs = {"a": Job(100, pause_us=20, slice_us=9000), "b": Job(BATCH_US, slice_us=1000)}
    parts = Device(jobs).play(5)[-1]
    assert parts["a"] < 0.15


def test_duty_is_a_part_of_the_time() -> None:
    jobs = {"a": Job(100, duty=0.3), "b": Job(BATCH_US, duty=0.7, begins=0.3)}
    windows = Device(jobs).play(6)
    for name, part in (("a", 0.3), ("b", 0.7)):
        ran = sum(window[name] for window in windows) / len(windows)
        assert ran == pytest.approx(part, abs=0.01)
