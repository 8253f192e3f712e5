"""Placer, plugin and gpu-leased together: a job that its node would refuse waits instead."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.slurm.cluster import PrivateSlurm
from tests.slurm.placer import PlacedSite, PlacerService, put_lua
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site
from tests.support.programs import SET_UP

TURNS = 3  # handoffs of each until a job may end
# Options of a job that runs, of one that may not be beside it, and why not.
LABELS = [
    ("exclusion:x", "exclusion:z", "a job without exclusion:z is there"),
    ("exclusion:x", "anti-affinity:y", "only jobs with exclusion:x may be there"),
    ("tq:5", "exclusion:x", "a job without exclusion:x is there"),
    ("anti-affinity:y", "anti-affinity:y", "a job with anti-affinity:y is there"),
]
SHARES = ("request:0.7", "request:0.4")
# Of two shares that do not fit together the node and the placer each say what they know.
REFUSED = [*LABELS, (*SHARES, "request:0.4 is more than is left of its GPU")]
WAITS = [*LABELS, (*SHARES, "0.3 of its time is left, and the job requests 0.4")]
# Kernels of 5 ms until a file is there; after the first one there is another.
WORKS = (
    SET_UP
    + """
import pathlib
while not pathlib.Path(sys.argv[1] + ".end").exists():
    ok(spin(5_000_000)); ok(d.cuCtxSynchronize())
    pathlib.Path(sys.argv[1] + ".works").touch()
"""
)


@dataclass
class Whole:
    """One node with one GPU; placed: the placer's part."""

    site: Site
    placed: PlacedSite

    def path(self, name: str) -> Path:
        return self.site.work / name

    def command(self, name: str) -> str:
        """A program on the GPU until NAME.end is there."""
        program = self.path("works.py")
        program.write_text(WORKS)
        for mark in ("end", "works"):
            self.path(f"{name}.{mark}").unlink(missing_ok=True)
        return f"cd {ROOT} && exec {sys.executable} {program} {self.path(name)}"

    def submit(self, name: str, options: str) -> int:
        """What the job prints is in NAME.log."""
        return self.site.slurm.sbatch(
            *("--gres=shard:1", f"--gpu-share={options}", "-o", str(self.path(f"{name}.log"))),
            *("-J", name, "--wrap", self.command(name)),
            cwd=self.site.work,
        )

    def computes(self, name: str, job: int) -> None:
        """Wait until it has computed with a lease of its own."""
        self.site.wait_for_tenant(job)
        wait_until(f"job {job} to compute", self.path(f"{name}.works").exists)

    def takes_turns(self, job: int) -> None:
        wait_until(f"job {job} to have had turns", lambda: self._handoffs(job) >= TURNS)

    def _handoffs(self, job: int) -> int:
        found: Any = next(one for one in self.site.status() if one["job_id"] == job)
        return sum(used["handoffs"] for used in found["gpus"].values())

    def waits_for(self, job: int, words: str) -> None:
        """Fails at once where it was let start."""
        placed = self.placed
        wait_until(
            f"job {job} to say {words!r}",
            lambda: words in placed.comment(job) or not placed.waits(job),
        )
        assert placed.waits(job), self.site.slurm.job(job)

    def let_end(self, name: str) -> None:
        self.path(f"{name}.end").touch()

    def completes(self, name: str, job: int) -> None:
        self.let_end(name)
        assert self.site.slurm.wait(job) == "COMPLETED", self.log(name)

    def log(self, name: str) -> str:
        return self.path(f"{name}.log").read_text()


@pytest.fixture(scope="module")
def whole() -> Iterator[Whole]:
    services = []

    def prepare(slurm: PrivateSlurm) -> None:
        services.append(PlacerService(slurm.prefix / "placer", slurm))
        put_lua(slurm.layout.etc, services[0].alive)

    with sharing_site(
        slurm_conf=["JobSubmitPlugins=lua"],
        leased_conf="tell_placer = true\n[limits]\nexclusion = true\nrequest_max = 0.8\n",
        hurried=["leased.node.rules_report.LOOK_S=0.1"],
        prepare=prepare,
    ) as site:
        try:
            yield Whole(site, PlacedSite(site.slurm, services[0]))
        finally:
            services[0].stop()


@pytest.fixture(autouse=True)
def _no_job_is_left(whole: Whole) -> Iterator[None]:
    """Of a test that fails."""
    yield
    left = whole.site.slurm.run("squeue", "-h", "-o", "%A").stdout.split()
    whole.placed.cancel(*map(int, left))


@pytest.fixture
def placer(whole: Whole) -> Iterator[PlacerService]:
    """It runs during the test."""
    whole.placed.placer.start()
    yield whole.placed.placer
    whole.placed.placer.stop()


@pytest.mark.parametrize(("there", "options", "reason"), REFUSED)
def test_without_the_placer_the_node_refuses_it(
    whole: Whole, there: str, options: str, reason: str
) -> None:
    first = whole.submit("first", there)
    whole.computes("first", first)
    second = whole.submit("second", options)
    assert whole.site.slurm.wait(second) == "FAILED"
    assert reason in whole.log("second")
    whole.completes("first", first)
    whole.site.node_works()


@pytest.mark.usefixtures("placer")
@pytest.mark.parametrize(("there", "options", "reason"), WAITS)
def test_with_the_placer_it_waits_and_both_complete(
    whole: Whole, there: str, options: str, reason: str
) -> None:
    first = whole.submit("first", there)
    whole.computes("first", first)
    second = whole.submit("second", options)
    whole.waits_for(second, reason)
    whole.completes("first", first)
    whole.computes("second", second)
    assert whole.placed.comment(second) == ""
    whole.completes("second", second)
    whole.site.node_works()


FORBIDDEN = ("request:0.9", "request:0.9 is more than a job may request on this site")


def test_without_the_placer_the_node_refuses_what_it_forbids(whole: Whole) -> None:
    options, reason = FORBIDDEN
    job = whole.submit("large", options)
    assert whole.site.slurm.wait(job) == "FAILED"
    assert reason in whole.log("large")


@pytest.mark.usefixtures("placer")
def test_with_the_placer_what_the_node_forbids_says_so_and_waits(whole: Whole) -> None:
    options, reason = FORBIDDEN
    node = whole.site.slurm.node
    shown = ("sinfo", "-h", "-n", node, "-O", "Comment:1000")
    wait_until("its rules", lambda: "=0.800000" in whole.site.slurm.run(*shown).stdout)
    job = whole.submit("large", options)
    whole.waits_for(job, f"it can never start: {reason}; request 0.8 or less")
    allowed = whole.submit("allowed", "request:0.8")
    whole.computes("allowed", allowed)
    assert whole.placed.waits(job)
    whole.completes("allowed", allowed)


@pytest.mark.usefixtures("placer")
def test_jobs_of_one_label_take_turns_and_another_waits_for_both(whole: Whole) -> None:
    options = "exclusion:x,lock:on,tq:100ms"
    pair = {name: whole.submit(name, options) for name in ("one", "two")}
    for name, job in pair.items():
        whole.computes(name, job)
        whole.takes_turns(job)
    other = whole.submit("other", "exclusion:z")
    whole.waits_for(other, "a job without exclusion:z is there")
    whole.completes("one", pair["one"])
    assert whole.placed.waits(other)
    whole.completes("two", pair["two"])
    whole.computes("other", other)
    whole.completes("other", other)
    whole.site.node_works()


@pytest.mark.usefixtures("placer")
def test_srun_waits_as_well(whole: Whole) -> None:
    first = whole.submit("first", "anti-affinity:y")
    whole.computes("first", first)
    script = whole.command("second")
    with subprocess.Popen(
        [
            "srun",
            "-J",
            "second",
            "--gres=shard:1",
            "--gpu-share=anti-affinity:y",
            "sh",
            "-c",
            script,
        ],
        env=whole.site.slurm.env,
        cwd=whole.site.work,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as second:
        wait_until("its job to be there", lambda: named(whole, "second") is not None)
        job = named(whole, "second")
        assert job is not None
        whole.waits_for(job, "a job with anti-affinity:y is there")
        whole.completes("first", first)
        whole.computes("second", job)
        whole.let_end("second")
        _, said = second.communicate(timeout=120)
    assert second.returncode == 0, said
    assert whole.site.slurm.wait(job) == "COMPLETED"


def named(whole: Whole, name: str) -> int | None:
    """The job of this name that is pending or runs."""
    said = whole.site.slurm.run("squeue", "-h", "-n", name, "-t", "PD,R", "-o", "%A").stdout.split()
    return int(said[0]) if said else None
