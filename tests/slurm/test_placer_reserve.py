"""A job that has waited for long gets a GPU on a real Slurm, though smaller jobs keep coming."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm.placer import PlacedSite, placed_site
from tests.slurm.processes import wait_until

KEPT = "it is kept for a job that has waited for longer"


@pytest.fixture(scope="module")
def site() -> Iterator[PlacedSite]:
    """Two nodes with one GPU each; who has waited for a second has waited for long."""
    with placed_site(reserve_after="1s") as made:
        yield made


@pytest.fixture(autouse=True)
def _no_job_is_left(site: PlacedSite) -> Iterator[None]:
    yield
    left = site.slurm.run("squeue", "-h", "-o", "%A").stdout.split()
    site.cancel(*map(int, left))


@pytest.mark.parametrize("options", ["exclusion:team-a", "request:0.9"])
def test_a_job_that_others_keep_waiting_starts(site: PlacedSite, options: str) -> None:
    """Without the reservation each of the jobs that come would start at once, beside the others."""
    one, two = site.slurm.layout.node_names
    elsewhere = site.submit("request:0.2", "-w", one, "-t", "100")
    before = site.submit("request:0.2", "-w", two, "-t", "50")
    site.gpu(elsewhere)
    site.gpu(before)
    tired = site.submit(options)
    site.wait_for_comment(tired, f"waits: {two} is kept for it; ")
    assert f"job {tired}: {two} is kept for it" in site.placer.log
    coming = [site.submit("request:0.2", "-t", "100", "-w", two) for _ in range(2)]
    for job in coming:
        site.wait_for_comment(job, f"{two} GPU 0: {KEPT}")
    free = site.submit("request:0.2", "-t", "100")
    assert site.gpu(free)[0] == one
    site.cancel(before)
    assert site.gpu(tired)[0] == two
    assert site.comment(tired) == ""
    assert all(site.waits(job) for job in coming)
    site.cancel(tired)
    for job in coming:
        site.gpu(job)


def test_a_job_that_ends_in_time_does_not_wait(site: PlacedSite) -> None:
    one, two = site.slurm.layout.node_names
    before = [site.submit("request:0.2", "-w", node, "-t", "60") for node in (one, two)]
    for job in before:
        site.gpu(job)
    tired = site.submit("request:0.9", "-w", two)
    site.wait_for_comment(tired, f"{two} is kept for it")
    short = site.submit("request:0.2", "-w", two, "-t", "30")
    assert site.gpu(short)[0] == two
    long = site.submit("request:0.2", "-w", two, "-t", "90")
    endless = site.submit("request:0.2", "-w", two, "-t", "UNLIMITED")
    for job in (long, endless):
        site.wait_for_comment(job, KEPT)
    # What ends only when it is told to: the job that waits gets the GPU once that has ended too.
    site.cancel(before[1], short)
    assert site.gpu(tired)[0] == two


def test_a_placer_that_was_killed_keeps_it_for_the_same_job(site: PlacedSite) -> None:
    one, two = site.slurm.layout.node_names
    before = [site.submit("request:0.2", "-w", node) for node in (one, two)]
    for job in before:
        site.gpu(job)
    tired = site.submit("exclusion:first", "-w", two)
    site.wait_for_comment(tired, f"{two} is kept for it")
    later = site.submit("exclusion:second", "-w", two)
    site.wait_for_comment(later, "a job without exclusion:second is there")
    site.placer.kill()
    site.cancel(before[1])
    assert site.waits(tired)
    site.placer.start()
    assert site.gpu(tired)[0] == two
    assert site.waits(later)


def test_what_slurm_places_by_itself_is_not_kept_away_and_does_no_harm(site: PlacedSite) -> None:
    """Jobs without labels and requests go where Slurm puts them: another GPU is kept then."""
    one, two = site.slurm.layout.node_names
    first = site.submit("request:0.2", "-w", one, "-t", "100")
    second = site.submit("request:0.2", "-w", two, "-t", "50")
    site.gpu(first)
    site.gpu(second)
    tired = site.submit("exclusion:team-a")
    site.wait_for_comment(tired, f"{two} is kept for it")
    plain = site.submit("", "-w", two, "-t", "200")
    site.gpu(plain)
    wait_until(
        "the other to be kept", lambda: f"job {tired}: {one} is kept for it" in site.placer.log
    )
    site.cancel(first)
    assert site.gpu(tired)[0] == one
