"""What is shown of a status: valid OpenMetrics, bounded, and counters that never fall."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leased.api.answers import Status
from leased.base.errors import NoAnswer
from leased.metrics import collector
from leased.metrics.families import DEVICES, JOBS, Row
from tests.metrics.statuses import NO_UID, UUIDS, Scraper, device, status, tenant

HELD = "gpu_lease_held_seconds_total"


def one(*tenants: dict[str, object]) -> Scraper:
    return Scraper(lambda: status(tenants))


def test_a_status_becomes_the_metrics_that_are_listed() -> None:
    families = one(tenant(7, lease_s=2.5)).families()
    listed: tuple[Row[Any], ...] = (*JOBS, *DEVICES)
    for row in listed:
        family = families[row.family]
        assert (family.type, family.unit, family.documentation) == (row.type, row.unit, row.help)
        assert family.samples, row.family


def test_a_job_has_its_number_its_user_and_its_gpu() -> None:
    found = one(tenant(7, lease_s=2.5)).values(HELD, "job_id", "user", "gpu", "uuid")
    assert found == {("7", str(NO_UID), "0", UUIDS[0]): 2.5}


@settings(deadline=None, max_examples=60)
@given(st.text(st.characters(), max_size=40))
@example("")
@example("x" * 500)
@example("\ud800")
@example('a"}b\\n{}=,#\n\r\n\x1b')
def test_the_name_of_a_user_may_be_any_text(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collector, "user_of", lambda _: text)
        found = list(one(tenant(7)).values(HELD, "user"))
    shown = text[: collector.LONGEST_LABEL].encode("utf-8", "replace").decode()
    assert found == [(shown or str(NO_UID),)]


def test_a_gpu_of_which_nvml_says_nothing_has_no_sample() -> None:
    said = [device(0, busy_percent=None), device(1, busy_percent=0)]
    scraper = Scraper(lambda: status(devices=said))
    assert scraper.values("gpu_lease_device_busy_ratio", "gpu") == {("1",): 0.0}


def test_the_mode_of_a_gpu_is_one_of_all() -> None:
    modes = Scraper(lambda: status(devices=[device(mode="faulty", fault="lost")]))
    found = modes.values("gpu_lease_device_mode", "mode")
    assert found.pop(("faulty",)) == 1
    assert set(found.values()) == {0.0}
    assert modes.values("gpu_lease_device_faulty", "gpu") == {("0",): 1.0}
    assert modes.values("gpu_lease_device_mps_faults_total", "gpu") == {("0",): 3.0}
    assert modes.values("gpu_lease_device_mps_ends_total", "gpu") == {("0",): 2.0}


def test_a_daemon_that_does_not_answer_is_down() -> None:
    def says() -> Status:
        raise NoAnswer("gone")

    assert list(Scraper(says).families()) == ["gpu_lease_up"]
    assert Scraper(says).values("gpu_lease_up") == {(): 0.0}
    assert one().values("gpu_lease_up") == {(): 1.0}


# -- counters ------------------------------------------------------------------------


def test_a_counter_does_not_fall_when_the_daemon_goes_back_a_second() -> None:
    said = [5.0, 4.25, 4.75, 6.0]
    statuses = iter([status([tenant(7, lease_s=value)]) for value in said])
    scraper = Scraper(lambda: next(statuses))
    assert [scraper.values(HELD) for _ in said] == [{(): v} for v in (5.0, 5.0, 5.0, 6.0)]


def test_a_job_that_is_requeued_begins_anew() -> None:
    runs = [tenant(7, opened=1.0, lease_s=500.0), tenant(7, opened=600.0, lease_s=2.0)]
    statuses = iter([status([run]) for run in runs])
    scraper = Scraper(lambda: next(statuses))
    assert [scraper.values(HELD) for _ in runs] == [{(): 500.0}, {(): 2.0}]


def test_series_of_a_job_end_with_it() -> None:
    statuses = iter([status([tenant(7), tenant(8)]), status([tenant(8)]), status()])
    scraper = Scraper(lambda: next(statuses))
    found = [set(scraper.values(HELD, "job_id")) for _ in range(3)]
    assert found == [{("7",), ("8",)}, {("8",)}, set()]


def test_bytes_to_the_gpu_and_from_it_are_apart() -> None:
    job = tenant(7, moved_bytes=100, moved_out_bytes=30)
    said = device(total={"moved_bytes": 1000, "moved_out_bytes": 400})
    scraper = Scraper(lambda: status([job], [said]))
    found = scraper.values("gpu_lease_moved_bytes_total", "job_id", "direction")
    assert found == {("7", "in"): 70.0, ("7", "out"): 30.0}
    found = scraper.values("gpu_lease_device_moved_bytes_total", "direction")
    assert found == {("in",): 600.0, ("out",): 400.0}


def test_totals_of_a_gpu_do_not_fall_until_another_daemon_begins() -> None:
    said = [(100.0, 7.0), (105.0, 6.5), (1.0, 0.25)]
    statuses = iter(
        [{**status(devices=[device(total={"lease_s": held})]), "uptime_s": up} for up, held in said]
    )
    scraper = Scraper(lambda: cast(Status, next(statuses)))
    found = [scraper.values("gpu_lease_device_held_seconds_total") for _ in said]
    assert found == [{(): 7.0}, {(): 7.0}, {(): 0.25}]


def test_handoffs_are_a_histogram_for_each_gpu() -> None:
    times = {"bounds_s": [0.001, 1.0, 60.0], "counts": [3, 0, 2, 1], "sum_s": 190.5}
    scraper = Scraper(lambda: status(devices=[device(0, handoff_times=times), device(1)]))
    found = scraper.values("gpu_lease_handoff_seconds_bucket", "gpu", "le")
    assert [found["0", le] for le in ("0.001", "1.0", "60.0", "+Inf")] == [3, 3, 5, 6]
    assert scraper.values("gpu_lease_handoff_seconds_sum", "gpu")[("0",)] == 190.5
    assert scraper.values("gpu_lease_handoff_seconds_count", "gpu") == {("0",): 6.0, ("1",): 0.0}


def test_a_daemon_that_is_older_says_less() -> None:
    said = device()
    del said["total"], said["handoff_times"]
    job = tenant(7, lease_s=1.5)
    del job["opened"]
    scraper = Scraper(lambda: status([job], [said]))
    assert scraper.values(HELD) == {(): 1.5}
    assert scraper.values("gpu_lease_device_held_seconds_total") == {}
    assert scraper.values("gpu_lease_handoff_seconds_count") == {}


# -- many ------------------------------------------------------------------------------


def test_hundreds_of_jobs_on_eight_gpus() -> None:
    jobs = [tenant(job, job % 8, lease_s=job) for job in range(1, 501)]
    scraper = Scraper(lambda: status(jobs, [device(n) for n in range(8)]))
    found = scraper.values(HELD, "job_id", "gpu")
    assert found == {(str(job), str(job % 8)): float(job) for job in range(1, 501)}
    assert scraper.values("gpu_lease_jobs_left_out") == {(): 0.0}
    assert scraper.values("gpu_lease_jobs", "state")[("idle",)] == 500


def test_more_jobs_than_the_site_wants_are_counted_and_left_out() -> None:
    jobs = [tenant(job) for job in (9, 3, 5, 7)]
    scraper = Scraper(lambda: status(jobs), most=2)
    assert set(scraper.values(HELD, "job_id")) == {("3",), ("5",)}
    assert scraper.values("gpu_lease_jobs_left_out") == {(): 2.0}


def test_a_gpu_that_slurm_does_not_have_is_not_shown() -> None:
    scraper = Scraper(lambda: status([tenant(7, 1)], [device(0)]))
    assert scraper.values(HELD) == {}
