"""A job that Slurm requeues goes on on another node where it was: a real Slurm, and CRIU."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.saving.test_runner import COUNTS, ROOT, needs_criu
from tests.slurm.cluster import PrivateSlurm
from tests.slurm.processes import wait_until
from tests.support.work_dir import work_dir


@pytest.fixture
def work() -> Iterator[Path]:
    made = work_dir()
    yield made
    shutil.rmtree(made, ignore_errors=True)


@needs_criu
@pytest.mark.long
@pytest.mark.parametrize("by", ["scontrol requeue", "checkpoint --requeue"])
def test_a_requeued_job_goes_on_on_the_other_node(work: Path, by: str) -> None:
    orders, place, out = work / "orders", work / "saved", work / "out"
    orders.mkdir()
    ctl = f"{sys.executable} -m leased.cli.ctl"
    script = work / "script"
    script.write_text(
        f"#!/bin/sh\ncd {ROOT}\necho on $SLURMD_NODENAME\n"
        f"exec {ctl} run --checkpoint {place} -- {sys.executable} -c '{COUNTS}' 4 {orders}\n"
    )
    with PrivateSlurm(work / "slurm", nodes=2, plugin=None) as slurm:
        first, second = slurm.layout.node_names

        def counted(n: int) -> None:
            wait_until(f"count {n}", lambda: f"count {n} " in out.read_text())

        job = slurm.sbatch(
            *("--requeue", "--open-mode=append", f"--nodelist={first}", f"--output={out}"),
            str(script),
        )
        wait_until("its output", out.exists)
        (orders / "0").touch()
        counted(1)
        if by == "scontrol requeue":
            slurm.run("scontrol", "requeue", str(job))
        else:
            slurm.run(*ctl.split(), "checkpoint", str(job), str(place), "--requeue", cwd=ROOT)
        wait_until("it to wait", lambda: slurm.job(job)["JobState"] == "PENDING")
        assert (place / "complete" / "checkpoint.json").exists()
        update = (f"jobid={job}", f"reqnodelist={second}", "starttime=now+3")
        slurm.run("scontrol", "update", *update)
        for n in (1, 2, 3):
            (orders / str(n)).touch()
        assert slurm.wait(job) == "COMPLETED", out.read_text()
    said = out.read_text()
    assert re.findall(r"^on (\S+)$", said, re.MULTILINE) == [first, second]
    assert [int(n) for n in re.findall(r"^count (\d) ", said, re.MULTILINE)] == [0, 1, 2, 3]
    assert len(set(re.findall(r"^count \d (\d+)$", said, re.MULTILINE))) == 1
