"""The shipped job_submit.lua in a real slurmctld: what it refuses, and what it leaves alone.

The plugin's own check is off, so that every refusal here is slurmctld's.
"""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.slurm.cluster import PrivateSlurm
from tests.slurm.processes import wait_until
from tests.slurm.test_share import NEEDS_OTHER_GRES
from tests.support.work_dir import work_dir

# Of changes of the script, each later than the one before, and than its first reading.
SECONDS = itertools.count(int(time.time()) + 3600)
SHIPPED = ROOT / "slurm-conf"
SHARES = ["--gres=shard:1", "--gpu-share=tq:5"]
SCRIPT = (SHIPPED / "job_submit.lua").read_text()
UNCHECKED = """
function slurm_job_submit() return slurm.SUCCESS end
function slurm_job_modify() return slurm.SUCCESS end
return slurm.SUCCESS
"""
# sbatch, salloc and srun themselves send no job that has both, whoever asks.
SEEN = [case for case, (_, words) in NEEDS_OTHER_GRES.items() if "not both" not in words]


@pytest.fixture(scope="module")
def slurm() -> Iterator[PrivateSlurm]:
    work = work_dir()
    made = PrivateSlurm(
        work / "slurm",
        nodes=2,
        slurm_conf=["JobSubmitPlugins=lua"],
        plugin_args=["check_gres=no"],
    )
    etc = made.layout.etc
    etc.mkdir(parents=True)
    for name in ("job_submit.lua", "gpu_share.lua"):
        shutil.copy(SHIPPED / name, etc)
    try:
        with made:
            yield made
    finally:
        shutil.rmtree(work, ignore_errors=True)


def refusal(slurm: PrivateSlurm, command: str, *arguments: str) -> str:
    """What is said of a job that is refused; there is none afterwards."""
    before = slurm.run("squeue", "-h", "-t", "all", "-o", "%i").stdout
    tail = ["--wrap=true"] if command == "sbatch" else ["true"]
    done = slurm.run(command, *arguments, *tail, check=False, cwd=slurm.prefix)
    assert done.returncode != 0, arguments
    assert slurm.run("squeue", "-h", "-t", "all", "-o", "%i").stdout == before
    return done.stderr


def submit(slurm: PrivateSlurm, *arguments: str) -> int:
    return slurm.sbatch(*arguments, "-o", "/dev/null", "--wrap=true", cwd=slurm.prefix)


def fields(slurm: PrivateSlurm, job: int) -> dict[str, str]:
    """What was asked for."""
    asked = ("TresPerNode", "TresPerJob", "NumNodes", "Partition", "Priority", "ArrayTaskId")
    return {key: value for key, value in slurm.job(job).items() if key in asked}


@pytest.mark.parametrize("case", SEEN)
def test_a_batch_job_that_cannot_share_is_refused(slurm: PrivateSlurm, case: str) -> None:
    arguments, sentence = NEEDS_OTHER_GRES[case]
    assert sentence in refusal(slurm, "sbatch", *arguments)


@pytest.mark.parametrize("command", ["srun", "salloc"])
def test_the_other_commands_are_refused_as_well(slurm: PrivateSlurm, command: str) -> None:
    assert "add --gres=shard:1" in refusal(slurm, command, "--gpu-share=tq:5")
    assert "ask for one node (-N1)" in refusal(slurm, command, "--gres=shard:1", "-N2")


def test_an_array_is_refused_as_one_job(slurm: PrivateSlurm) -> None:
    said = refusal(slurm, "sbatch", "--array=1-3", "--gpu-share=tq:5")
    assert said.count("add --gres=shard:1") == 1


def test_a_component_of_a_heterogeneous_job_is_refused(slurm: PrivateSlurm) -> None:
    assert "(-N1)" in refusal(slurm, "sbatch", "-n1", ":", "-N2", "--gres=shard:1")
    assert "(-N1)" in refusal(slurm, "sbatch", *SHARES, ":", "-N2", "--gres=shard:1")


def test_a_bad_gpu_share_that_the_job_alone_gets_is_refused(slurm: PrivateSlurm) -> None:
    """The plugin in sbatch looks at sbatch's own environment."""
    said = refusal(slurm, "sbatch", "--export=GPU_SHARE=tq:soon", "--gres=shard:1")
    assert "'tq:soon' of the environment variable GPU_SHARE is no value of --gpu-share" in said
    assert submit(slurm, "--export=GPU_SHARE=tq:soon")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--gres=gpu:1"],
        ["--gres=gpu:1", "-N2"],
        ["-N2"],
        SHARES,
        ["--gres=shard:1"],
        ["--gres=shard:1", "--exclusive"],
        ["--gres=shard:1", "--array=1-2"],
        # Of a heterogeneous job only one component shares.
        [*SHARES, ":", "-n1"],
        ["--gres=gpu:1", ":", *SHARES],
    ],
    ids=" ".join,
)
def test_other_jobs_are_left_alone(slurm: PrivateSlurm, arguments: list[str]) -> None:
    checked = submit(slurm, "--hold", *arguments)
    put_script(slurm, UNCHECKED)
    try:
        unchecked = submit(slurm, "--hold", *arguments)
    finally:
        put_script(slurm, SCRIPT)
    assert fields(slurm, checked) == fields(slurm, unchecked)
    slurm.run("scancel", str(checked), str(unchecked))


def put_script(slurm: PrivateSlurm, text: str) -> None:
    """It is read again: slurmctld looks whether the second of its change is a later one."""
    script = slurm.layout.etc / "job_submit.lua"
    script.write_text(text)
    later = next(SECONDS)
    os.utime(script, (later, later))


def test_jobs_go_on_without_the_rules(slurm: PrivateSlurm, tmp_path: Path) -> None:
    rules = slurm.layout.etc / "gpu_share.lua"
    shutil.move(rules, tmp_path)
    put_script(slurm, SCRIPT)
    try:
        assert submit(slurm, "--hold", "--gres=shard:1", "-N2")
        log = slurm.layout.log / "slurmctld.log"
        wait_until("slurmctld to say so", lambda: "gpu-share: cannot open" in log.read_text())
    finally:
        shutil.move(tmp_path / rules.name, rules)
        put_script(slurm, SCRIPT)
