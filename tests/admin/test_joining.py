"""Steps that join a job which the daemon knows, and jobs that run again unnoticed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from leased.api.client import ask
from leased.base.errors import Refused
from tests.conftest import ROOT
from tests.slurm.leased import Leased

REGISTER = {"op": "register", "job_id": 7, "uid": 0, "nodes": 1, "shards": 1, "gpus": [0]}


def ended_step(leased: Leased, options: str) -> None:
    """A step of job 7 that has registered and is over."""
    command = [sys.executable, "-m", "tests.support.tenant", "--admin", str(leased.admin_socket)]
    command += ["--job", "7", "--options", options, "--", "true"]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | leased.env)


def quantum_s(leased: Leased) -> float:
    (tenant,) = ask(leased.admin_socket, {"op": "status"})["tenants"]
    return float(tenant["quantum_s"])


def test_a_further_step_joins(leased: Leased) -> None:
    first = ask(leased.admin_socket, REGISTER | {"options": "tq:5"})
    joined = ask(leased.admin_socket, {"op": "join", "job_id": 7, "memory_mib": 0})
    assert joined == first
    assert quantum_s(leased) == 5


def test_a_step_cannot_join_a_job_that_is_not_known(leased: Leased) -> None:
    with pytest.raises(Refused, match="job 7 is not registered"):
        ask(leased.admin_socket, {"op": "join", "job_id": 7})
    with pytest.raises(Refused, match="job_id is None"):
        ask(leased.admin_socket, {"op": "join"})


def test_a_step_joins_after_the_steps_before_have_ended(leased: Leased) -> None:
    ended_step(leased, "tq:5")
    ask(leased.admin_socket, {"op": "join", "job_id": 7, "memory_mib": 0})
    assert quantum_s(leased) == 5


def test_a_job_that_registers_anew_is_another_run(leased: Leased) -> None:
    """Its epilog told nobody: the daemon was down. What it had then is not what it has now."""
    ended_step(leased, "tq:5")
    ask(leased.admin_socket, REGISTER | {"options": "tq:9"})
    assert quantum_s(leased) == 9
    assert (
        "job 7 has started again; the end of its previous run was not reported"
        in leased.log.read_text()
    )


def test_two_steps_that_start_at_once_are_one_run(leased: Leased) -> None:
    """Each may find that no step of the job has registered yet."""
    ask(leased.admin_socket, REGISTER | {"options": "tq:5"})
    ended_step(leased, "tq:9")
    assert quantum_s(leased) == 5


def test_a_cap_that_caps_nothing_is_noted_once(leased: Leased) -> None:
    answer = ask(leased.admin_socket, REGISTER | {"options": "mem:900GiB"})
    assert answer["note"].startswith("mem:900 GiB has no effect on GPU 0, of which a job may have ")
    assert "note" not in ask(leased.admin_socket, {"op": "join", "job_id": 7})
    assert "note" not in ask(leased.admin_socket, REGISTER | {"job_id": 8, "options": "mem:50%"})
