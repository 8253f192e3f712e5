"""Two Slurm clusters on one node: whose jobs the daemon takes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leased.api.client import ask
from leased.base.errors import Refused
from leased.slurm.clusters import OTHERS, Cluster
from leased.slurm.commands import Slurm
from tests.slurm.leased import Leased

CONFIG = """\
Configuration data as of 2026-01-01T00:00:00
ClusterName             = {name}
CommunicationParameters = (null)
"""


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command that prints what stands in the file `says` beside it."""
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/says\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "says"


def learn(cluster: Cluster) -> bool:
    return asyncio.run(cluster.learn(Slurm({})))


def test_jobs_of_another_cluster_are_refused(scontrol: Path) -> None:
    scontrol.write_text(CONFIG.format(name="alpha"))
    cluster = Cluster()
    assert learn(cluster)
    cluster.admit(7, "alpha")
    cluster.admit(7, "Alpha")
    cluster.admit(7, "")
    for _ in range(2):
        with pytest.raises(Refused, match=r"job 7 is of the Slurm cluster beta, .* serves alpha"):
            cluster.admit(7, "beta")
    assert cluster.status() == {"name": "alpha", "refused": {"beta": 2}}


@pytest.mark.parametrize("said", ["", "slurm_load_ctl_conf error: Unable to contact\n", "\xff"])
def test_until_its_slurm_answers_the_first_job_says_which(scontrol: Path, said: str) -> None:
    scontrol.write_bytes(said.encode("latin-1"))
    cluster = Cluster()
    assert not learn(cluster)
    cluster.admit(7, "beta")
    with pytest.raises(Refused, match="serves beta"):
        cluster.admit(8, "alpha")
    scontrol.write_text(CONFIG.format(name="alpha"))
    assert learn(cluster)
    cluster.admit(8, "alpha")
    with pytest.raises(Refused, match="serves alpha"):
        cluster.admit(7, "beta")


def test_without_scontrol_no_cluster_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not learn(Cluster())


def test_names_that_are_counted_are_bounded() -> None:
    cluster = Cluster("alpha")
    for n in range(2 * OTHERS):
        with pytest.raises(Refused):
            cluster.admit(7, f"c{n}")
    assert len(cluster.refused) == OTHERS


def step(job: int, cluster: str, uid: int = 1000) -> dict[str, Any]:
    return {
        "op": "register",
        "job_id": job,
        "uid": uid,
        "nodes": 1,
        "shards": 1,
        "gpus": [0],
        "cluster": cluster,
    }


def test_a_step_of_another_cluster_is_refused_and_told_to_people(leased: Leased) -> None:
    ask(leased.admin_socket, step(7, "alpha"))
    ask(leased.admin_socket, step(7, "alpha"))
    for job in (7, 8):
        with pytest.raises(Refused, match=f"job {job} is of the Slurm cluster beta"):
            ask(leased.admin_socket, step(job, "beta"))
    answer = ask(leased.admin_socket, {"op": "status"})
    assert [t["job_id"] for t in answer["tenants"]] == [7]
    assert answer["cluster"] == {"name": "alpha", "refused": {"beta": 2}}
    said = subprocess.run(
        [sys.executable, "-m", "leased.cli.ctl", "--socket", str(leased.admin_socket), "status"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "refused: 2 steps of the Slurm cluster beta; this daemon serves alpha" in said


def test_a_job_of_another_user_with_the_same_number_is_another(leased: Leased) -> None:
    ask(leased.admin_socket, step(7, ""))
    with pytest.raises(
        Refused, match="job 7 of user 1001 has the number of a job of user 1000, which"
    ):
        ask(leased.admin_socket, step(7, "", uid=1001))
