"""Whose process it is: Slurm's own cgroups, those that only look like them, ancestry."""

from __future__ import annotations

from pathlib import Path

import pytest

from leased.identity import ProcessId, Step, job_of, place_of, step_of
from tests.unit.test_leased import fake_process

SCOPE = "/system.slice/slurmstepd.scope"
SLUID = "sEKNKTV3WPV500"


@pytest.mark.parametrize(
    ("cgroup", "job", "step"),
    [
        ("4:freezer:/slurm/uid_1000/job_42/step_0\n1:name=systemd:/\n0::/\n", 42, "0"),
        ("4:freezer:/slurm_node1/uid_0/job_42/step_batch/task_0\n", 42, "batch"),
        (f"0::{SCOPE}/job_42/step_extern/user/task_special\n", 42, "extern"),
        ("0::/system.slice/node1_slurmstepd.scope/job_42/step_7/slurm\n", 42, "7"),
        ("0::/site.slice/site-slurm.slice/slurmstepd.scope/job_42/step_0/user\n", 42, "0"),
        (f"0::{SCOPE}/{SLUID}/step_interactive/user/task_0\n", None, "interactive"),
        # A job that has made cgroups of its own below its step stays what it is.
        (f"0::{SCOPE}/job_42/step_0/user/task_0/slurmstepd.scope/job_77/step_1\n", 42, "0"),
        ("4:freezer:/slurm/uid_0/job_42/step_0/slurm/uid_0/job_77/step_1\n", 42, "0"),
    ],
)
def test_where_slurm_put_it(tmp_path: Path, cgroup: str, job: int | None, step: str) -> None:
    fake_process(tmp_path, 10, 1, cgroup)
    place = place_of(10, tmp_path)
    assert place is not None
    assert (place.job, place.step) == (job, step)


@pytest.mark.parametrize(
    "cgroup",
    [
        # Below what a user's own service manager, or a service that runs as a user, was given.
        "0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_77/step_0\n",
        "0::/user.slice/slurmstepd.scope/job_77/step_0\n",
        "0::/system.slice/jupyter.service/slurmstepd.scope/job_77/step_0\n",
        "0::/system.slice/jupyter.service/system.slice/slurmstepd.scope/job_77/step_0\n",
        f"0::{SCOPE}/system/job_77/step_0\n",
        f"0::{SCOPE}/job_77x/step_0\n",
        f"0::{SCOPE}/{SLUID}0/step_0\n",
        f"0::{SCOPE}/sIIIIIIIIIIIII/step_0\n",
        "0::/job_77/step_0\n",
        "4:freezer:/docker/abc/slurm/uid_0/job_77/step_0\n",
        "4:freezer:/slurm/job_77/step_0\n",
        "4:freezer:/slurmy/uid_0/job_77/step_0\n",
        # Two jobs at once: whom to believe?
        "4:freezer:/slurm/uid_0/job_77/step_0\n3:devices:/slurm/uid_0/job_78/step_0\n",
        "",
    ],
)
def test_names_that_slurm_did_not_make(tmp_path: Path, cgroup: str) -> None:
    fake_process(tmp_path, 10, 1, cgroup)
    assert place_of(10, tmp_path) is None
    assert step_of(10, {}, tmp_path) is None


def test_a_sluid_is_the_job_of_the_slurmstepd_beside_it(tmp_path: Path) -> None:
    fake_process(tmp_path, 5, 1, f"0::{SCOPE}/{SLUID}/step_0/slurm\n")
    fake_process(tmp_path, 6, 1, f"0::{SCOPE}/{SLUID[:-1]}1/step_0/slurm\n")
    # Not descended from it any more: its parent has ended.
    fake_process(tmp_path, 10, 1, f"0::{SCOPE}/{SLUID}/step_0/user/task_0\n")
    stepds = {6: (ProcessId(6, 77), 41), 5: (ProcessId(5, 77), 42)}
    assert step_of(10, stepds, tmp_path) == Step(42, "0")
    assert job_of(10, {6: stepds[6]}, tmp_path) is None, "nobody knows its number"
    assert job_of(10, {5: (ProcessId(5, 78), 42)}, tmp_path) is None, "that one has ended"


@pytest.mark.parametrize(
    ("title", "step"),
    [
        (b"slurmstepd: [42.batch]\0", "batch"),
        (b"slurmstepd: [42.3] ", "3"),
        (b"slurmstepd: [42+1.0]\0", "0"),
        (b"/usr/sbin/slurmstepd\0infinity\0", None),
        (b"", None),
    ],
)
def test_without_cgroups_the_step_is_in_slurmstepds_title(
    tmp_path: Path, title: bytes, step: str | None
) -> None:
    fake_process(tmp_path, 5, 1, "0::/\n")
    fake_process(tmp_path, 10, 5, "0::/\n")
    (tmp_path / "5" / "cmdline").write_bytes(title)
    assert step_of(10, {5: (ProcessId(5, 77), 42)}, tmp_path) == Step(42, step)


def test_a_cgroup_of_a_registered_job_counts_more_than_descent(tmp_path: Path) -> None:
    fake_process(tmp_path, 5, 1, "0::/\n")
    fake_process(tmp_path, 6, 1, "0::/\n")
    fake_process(tmp_path, 10, 5, f"0::{SCOPE}/job_43/step_1/user/task_0\n")
    stepds = {5: (ProcessId(5, 77), 42), 6: (ProcessId(6, 77), 43)}
    assert step_of(10, stepds, tmp_path) == Step(43, "1")
    assert step_of(10, {5: stepds[5]}, tmp_path) == Step(42, "1")
