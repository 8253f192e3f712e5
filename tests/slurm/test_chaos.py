"""Forty jobs on eight emulated GPUs under a real Slurm, while everything that may fail does.

A third of them swap their memory, some are gangs of two GPUs. The daemon is killed and
restarted, jobs' processes are killed, stopped and continued, jobs are cancelled.
Whatever was not hurt must complete with the right data, the accounts must add up, what the
daemons have recorded must be replayed to the same actions, and nothing may be left behind.
CHAOS_SEED repeats a run as far as processes allow; CHAOS_KEEP=1 keeps its
directory.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from leased.slurm.usage_record import MARK
from tests.emugpu.server import EmulatedGpu
from tests.slurm import chaos_checks as checks
from tests.slurm.chaos import Storm
from tests.slurm.chaos_jobs import GPUS, Run, Spec, draw_all
from tests.slurm.cluster import PrivateSlurm
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.slurm.recorded import Records
from tests.support.work_dir import work_dir

SHARDS = 4  # of each device: so many jobs are on it at once
JOBS = 40
LATE = 4  # of them: submitted when devices have failed and are well again
CONFIG = '[limits]\nquantum_min = "50ms"\ndrain = "2s"\n'
END_S = 180.0
LOG_BYTES = 4000  # of the daemon's, shown when the test fails
AROUND_NS = 1_500_000_000  # of a moment at which something was wrong: what is shown of the record
MOMENT = re.compile(r", at (\d+)$")


@dataclass
class Site:
    """A cluster of one node with eight GPUs."""

    slurm: PrivateSlurm
    leased: Leased
    gpu: EmulatedGpu
    out: Path
    records: Records

    def submit(self, spec: Spec) -> Run:
        script = self.out / f"{spec.name}.sh"
        script.write_text(spec.script(self.out, self.leased.admin_socket))
        log = self.out / f"{spec.name}.log"
        job = self.slurm.sbatch(
            *("--gres=shard:1", f"--gpu-share={spec.share}", "-J", spec.name),
            *("-o", str(log), str(script)),
            cwd=self.out,
        )
        return Run(spec, job, self.out)


@pytest.fixture
def site() -> Iterator[Site]:
    work = work_dir()
    (work / "out").mkdir()
    with EmulatedGpu(work / "gpu", model="emu-h200-tiny", devices=GPUS, trace=True) as gpu:
        slurm = PrivateSlurm(work / "slurm", gpus=GPUS, shards_per_gpu=SHARDS, env=gpu.env)
        slurm.plugin_args += [f"admin_socket={work}/run/admin.sock", "tq_min=50ms"]
        records = Records(work / "record")
        config = records.config() + CONFIG
        leased = Leased(work / "leased", work / "run", slurm.env, config, activated=True)
        with slurm, leased:
            yield Site(slurm, leased, gpu, work / "out", records)
    if not os.environ.get("CHAOS_KEEP"):
        shutil.rmtree(work, ignore_errors=True)


def seed() -> int:
    given = os.environ.get("CHAOS_SEED")
    return int(given) if given else random.SystemRandom().randrange(1 << 32)


def settled(check: Callable[[], list[str]], timeout: float = 20.0) -> list[str]:
    """What the check still complains of when its time to come right is over."""
    try:
        wait_until("nothing to complain of", lambda: not check(), timeout=timeout, step=0.2)
    except TimeoutError:
        return check()
    return []


def verify(site: Site, storm: Storm, began: float, states: dict[int, str]) -> list[str]:
    """Complaints about everything that must hold at the end."""
    runs = list(storm.runs.values())
    wall = time.time() - began
    wait_until(
        "sacct to have the usage of every job",
        lambda: all(MARK in text for text in checks.comments(site.slurm, runs).values()),
        timeout=60,
        step=0.5,
    )
    texts = checks.comments(site.slurm, runs)
    used = {run.job_id: checks.usage_of(texts[run.job_id]) for run in runs}
    for run in runs:
        checks.excuse(run, used[run.job_id], storm.failed)
    said = [line for run in runs for line in checks.check_job(run, states[run.job_id])]
    said += [
        line for run in runs for line in checks.check_usage(run, used[run.job_id], wall, storm)
    ]
    said += checks.check_peaks(runs, used, storm.down)
    said += checks.check_sums(used, wall)
    trace, jobs = site.gpu.trace(), checks.jobs_by_pid(storm)
    said += checks.check_turns(storm, trace, jobs, used)
    said += checks.check_covered(storm, trace, jobs, used)
    said += checks.check_presence(storm, used)
    said += checks.check_swapping(runs, used)
    said += settled(lambda: checks.check_node(site.slurm))
    said += settled(lambda: checks.check_memory(site.gpu))
    said += settled(lambda: checks.check_processes(storm))
    return said


@pytest.mark.timeout(600)
def test_jobs_survive_what_happens_at_random(site: Site) -> None:
    number = seed()
    print(f"\nCHAOS_SEED={number}")
    rng = random.Random(number)
    wait_until("the record to begin", site.records.path.exists)
    before = checks.Footprint.of(site.leased)
    began = time.time()
    specs = draw_all(rng, JOBS, SHARDS, LATE)
    runs = {spec.name: site.submit(spec) for spec in specs[:-LATE]}
    storm = Storm(site.slurm, site.leased, site.gpu, runs, site.out, rng, site.records)

    def submit_more() -> None:
        runs.update({spec.name: site.submit(spec) for spec in specs[-LATE:]})

    try:
        storm.rage()
        storm.break_devices(submit_more)
        storm.calm()
        states = storm.wait_for_end(END_S)
        said = verify(site, storm, began, states)
        said += settled(lambda: checks.check_daemon(site.leased, before))
        said += checks.check_swap_is_free(site.leased)
        said += site.records.check()
    finally:
        print("\n".join(storm.said))
        print(site.leased.log.read_text()[-LOG_BYTES:])
    for moment in [found[1] for complaint in said if (found := MOMENT.search(complaint))][:1]:
        print(*site.records.around(int(moment), AROUND_NS), sep="\n")
    assert not said, f"seed {number}:\n" + "\n".join(said)
