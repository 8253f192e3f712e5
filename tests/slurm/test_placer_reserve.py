"""A job that has waited for long gets a GPU on a real Slurm, though smaller jobs keep coming."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leased.node.small_service import CANNOT_RUN
from tests.slurm.leased import ROOT
from tests.slurm.placer import PlacedSite, placed_site
from tests.slurm.processes import wait_until
from tests.support.together import zip_strict

KEPT = "it is kept for a job that has waited for longer"
SLURM_CONF = [
    "KillWait=60",  # a job that is cancelled while it is launched may not hear SIGTERM
    "PartitionName=low Nodes=ALL MaxTime=INFINITE",
    "MaxJobCount=40000",
    f"MaxArraySize={10**5}",
]


@pytest.fixture(scope="module")
def site() -> Iterator[PlacedSite]:
    """Two nodes with one GPU each, and two partitions; who has waited for a second has waited for
    long. The placer says a changed reason, and asks which partitions are closed, each second."""
    often = ["leased.placer.putting_off.SAY_S=1", "leased.placer.slurm_link.PARTITIONS_S=1"]
    with placed_site(reserve_after="1s", slurm_conf=SLURM_CONF, hurried=often) as made:
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
    _, before = filled(site)
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
    two = site.slurm.layout.node_names[1]
    before = filled(site, "60", "60")
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
    two = site.slurm.layout.node_names[1]
    before = filled(site, "50", "50")
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
    first, _ = filled(site)
    tired = site.submit("exclusion:team-a")
    site.wait_for_comment(tired, f"{two} is kept for it")
    plain = site.submit("", "-w", two, "-t", "200")
    site.gpu(plain)
    wait_until(
        "the other to be kept", lambda: f"job {tired}: {one} is kept for it" in site.placer.log
    )
    site.cancel(first)
    assert site.gpu(tired)[0] == one


def filled(site: PlacedSite, *limits: str) -> list[int]:
    """Jobs on both nodes, with these time limits; of which the one on the second ends first."""
    nodes = zip_strict(site.slurm.layout.node_names, limits or ("100", "50"))
    jobs = [site.submit("request:0.2", "-w", node, "-t", limit) for node, limit in nodes]
    for job in jobs:
        site.gpu(job)
    return jobs


def kept_from_another(site: PlacedSite, *arguments: str) -> tuple[int, int]:
    """A job for which the second node is kept, and one that could run there."""
    two = site.slurm.layout.node_names[1]
    tired = site.submit("exclusion:team-a", *arguments)
    site.wait_for_comment(tired, f"{two} is kept for it")
    other = site.submit("request:0.2", "-w", two, "-t", "200")
    site.wait_for_comment(other, KEPT)
    return tired, other


def update(site: PlacedSite, *words: str) -> None:
    site.slurm.run("scontrol", "update", *words)


@pytest.mark.parametrize("change", ["hold", "cancel", "begin", "exclude", "partition"])
def test_a_job_that_can_no_longer_use_it_keeps_it_from_nobody(
    site: PlacedSite, change: str
) -> None:
    two = site.slurm.layout.node_names[1]
    filled(site)
    tired, other = kept_from_another(site, "-p", "low")
    if change == "hold":
        site.slurm.run("scontrol", "hold", str(tired))
    elif change == "cancel":
        site.slurm.run("scancel", str(tired))
    elif change == "begin":
        update(site, f"jobid={tired}", "starttime=now+1hour")
    elif change == "exclude":
        update(site, f"jobid={tired}", f"excnodelist={two}")
    else:
        update(site, "partitionname=low", "state=down")
    assert site.gpu(other)[0] == two
    if change == "partition":
        assert site.waits(tired)
        update(site, "partitionname=low", "state=up")


def test_when_its_node_is_drained_another_is_kept(site: PlacedSite) -> None:
    one, two = site.slurm.layout.node_names
    before = filled(site)
    tired, other = kept_from_another(site)
    update(site, f"nodename={two}", "state=drain", "reason=test")
    wait_until(
        "the other to be kept", lambda: f"job {tired}: {one} is kept for it" in site.placer.log
    )
    update(site, f"nodename={two}", "state=resume")
    site.cancel(other, before[0])
    assert site.gpu(tired)[0] == one


def test_a_restart_of_slurmctld_or_of_the_placer_changes_nothing(site: PlacedSite) -> None:
    two = site.slurm.layout.node_names[1]
    before = filled(site)
    tired, other = kept_from_another(site)
    # A slurmctld that ends while a new job's row is made in the database leaves that job so that
    # nobody can change it before it starts: what is tried here is another matter.
    wait_until(
        "both to have their rows",
        lambda: all(site.slurm.sacct(job, "JobID") for job in (tired, other)),
    )
    site.slurm.stop_daemon("slurmctld")
    site.slurm.start_slurmctld()
    site.placer.stop()
    site.placer.start()
    site.wait_for_comment(tired, f"{two} is kept for it")
    site.wait_for_comment(other, KEPT)
    site.cancel(before[1])
    assert site.gpu(tired)[0] == two
    assert site.waits(other)


def test_jobs_without_a_time_limit_let_others_have_their_turn(site: PlacedSite) -> None:
    one, two = site.slurm.layout.node_names
    before = [site.submit("request:0.2", "-w", node) for node in (one, one, two)]
    for job in before:
        site.gpu(job)
    tired = site.submit("exclusion:team-a")
    site.wait_for_comment(tired, f"{two} is kept for it")
    other = site.submit("request:0.2", "-w", two)
    site.gpu(other)
    assert site.waits(tired)


def test_a_job_that_takes_its_time_to_end_is_waited_for(site: PlacedSite) -> None:
    """Slurm says no longer which GPU it has."""
    two = site.slurm.layout.node_names[1]
    file = site.placer.work / "slow"
    script = f"trap '' TERM; echo $$ >{file}; exec sleep 600"
    slow = site.submit("exclusion:c", "-w", two, "-t", "50", script=script)
    wait_until("its number", lambda: file.exists() and file.read_text().endswith("\n"))
    site.gpu(slow)
    tired = site.submit("exclusion:team-a", "-w", two)
    site.wait_for_comment(tired, f"{two} is kept for it")
    site.slurm.run("scancel", str(slow))
    wait_until("it to be ending", lambda: site.slurm.job(slow)["JobState"] == "COMPLETING")
    for _ in range(2):
        update(site, f"jobid={tired}", "comment=")
        site.wait_for_comment(tired, "a job without exclusion:team-a is there")
    assert f"job {tired}: it fits" not in site.placer.log
    os.kill(int(file.read_text()), signal.SIGKILL)
    assert site.gpu(tired)[0] == two


def test_an_array_of_ten_thousand_tasks_lets_others_come_between(site: PlacedSite) -> None:
    before = filled(site)
    array = site.submit("exclusion:team-a,request:0.9", "--array=1-10000", "-t", "100")
    two = site.slurm.layout.node_names[1]
    wait_until(
        "it to be kept",
        lambda: f"job {array}_[1-10000]: {two} is kept for it" in site.placer.log,
    )
    other = site.submit("request:0.2", "-w", two, "-t", "200")
    site.wait_for_comment(other, KEPT)
    site.cancel(before[1])
    assert site.gpu(f"{array}_1")[0] == two
    assert len(site.slurm.run("squeue", "-h", "-o", "%i").stdout.split()) < 10
    site.slurm.run("scancel", f"{array}_1")
    site.slurm.run("scontrol", "hold", f"{array}_[2-10000]")
    site.gpu(other)


@pytest.mark.parametrize("shared", ["state", "run"])
def test_a_second_placer_is_refused(site: PlacedSite, tmp_path: Path, shared: str) -> None:
    """Of one that has one directory in common with the first."""
    first = {"state": site.placer.state, "run": site.placer.alive.parent}
    text, other = site.placer.config.read_text(), tmp_path / "placer.toml"
    for name in first.keys() - {shared}:
        (tmp_path / name).mkdir()
        text = text.replace(f'"{first[name]}"', f'"{tmp_path / name}"')
    other.write_text(text)
    second = subprocess.run(
        [sys.executable, "-m", "leased.placer.service", "--config", str(other)],
        env=site.slurm.env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == CANNOT_RUN
    assert f"another gpu-lease-placer uses {first[shared]}" in second.stderr
    site.gpu(site.submit("request:0.2"))
