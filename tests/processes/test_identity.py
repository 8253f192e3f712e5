"""Whose process it is: Slurm's own cgroups, those that only look like them, ancestry."""

from __future__ import annotations

from pathlib import Path

import pytest

from leased.processes import procfs
from leased.processes.identity import ProcessId, Step, ancestors, process_id
from leased.processes.stepds import SCOPES, SLUIDS, Known, Stepds
from tests.support.fake_proc import process

SCOPE = "/system.slice/slurmstepd.scope"
SLUID = "sEKNKTV3WPV500"
OTHER_SLUID = SLUID[:-1] + "1"


class Memory:
    """Keeps slurmstepds as the store does."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[ProcessId, int]] = {}

    def stepds(self) -> dict[int, tuple[ProcessId, int]]:
        return dict(self.kept)

    def add_stepd(self, process: ProcessId, job_id: int) -> None:
        self.kept[process.pid] = (process, job_id)

    def forget_stepd(self, pid: int) -> None:
        self.kept.pop(pid, None)


class Node:
    """A /proc with slurmstepds, and what a daemon that they register with knows."""

    def __init__(self, root: Path):
        self.proc = root
        self.store = Memory()
        self.stepds = Stepds(self.store, self.proc)

    def stepd(self, pid: int, job: int, *cgroups: str, parent: int = 1) -> None:
        self.process(pid, *cgroups, parent=parent)
        self.stepds.register(pid, job)

    def process(self, pid: int, *cgroups: str, parent: int = 1) -> None:
        process(self.proc, pid, parent)
        self.move(pid, *cgroups)

    def move(self, pid: int, *cgroups: str) -> None:
        text = "".join(f"{line}\n" for line in cgroups or ("0::/",))
        (self.proc / str(pid) / "cgroup").write_text(text)

    def step(self, pid: int) -> Step | None:
        """Its step, and that both ways to ask say the same."""
        job = self.stepds.job_of(pid)
        found = self.stepds.known().step_of(pid, self.proc)
        assert job == (found.job if found else None)
        return found

    def restart(self) -> None:
        """Another daemon, on the same store."""
        self.stepds = Stepds(self.store, self.proc)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


V1 = "4:freezer:/slurm_node1/uid_1000/job_42"
V2 = f"0::{SCOPE}/job_42"
LAYOUTS = {
    "v1": (V1, V1),
    "v1, with limits of memory": (
        "5:memory:/slurm/uid_0/job_42/step_0",
        "5:memory:/slurm/uid_0/job_42",
    ),
    "v2": (f"{V2}/step_0/slurm", V2),
    "v2, its node named": (
        "0::/system.slice/node1_slurmstepd.scope/job_42/step_0/slurm",
        "0::/system.slice/node1_slurmstepd.scope/job_42",
    ),
    "v2, the site's slice": (
        "0::/site.slice/site-slurm.slice/slurmstepd.scope/job_42/step_0/slurm",
        "0::/site.slice/site-slurm.slice/slurmstepd.scope/job_42",
    ),
    "v2, slurmd in a container": (
        "0::/docker.slice/docker-abc.scope/system.slice/slurmstepd.scope/job_42/step_0/slurm",
        "0::/docker.slice/docker-abc.scope/system.slice/slurmstepd.scope/job_42",
    ),
    "v2, the daemon in a cgroup namespace": (
        "0::/../../slurmstepd.scope/job_42/step_0/slurm",
        "0::/../../slurmstepd.scope/job_42",
    ),
    "SLUID": (f"0::{SCOPE}/{SLUID}/step_0/slurm", f"0::{SCOPE}/{SLUID}"),
}


@pytest.mark.parametrize(("stepd", "job"), LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize(
    ("below", "step"),
    [
        ("/step_0", "0"),
        ("/step_batch/task_0", "batch"),
        ("/step_extern/user/task_special", "extern"),
        ("/step_interactive/user/task_0", "interactive"),
        ("/step_3+1/user/task_0", "3"),
        # A job that has made cgroups of its own below its step stays what it is.
        ("/step_7/user/task_0/slurmstepd.scope/job_77/step_1", "7"),
        (f"/step_7/user/task_0{SCOPE}/job_77/step_1", "7"),
        ("/step_7/slurm/uid_0/job_77/step_1", "7"),
    ],
)
def test_below_where_slurmstepd_is_with_its_job(
    node: Node, stepd: str, job: str, below: str, step: str
) -> None:
    node.stepd(5, 42, stepd, "1:name=systemd:/")
    job = stepd.partition("/step_")[0]
    node.process(10, "1:name=systemd:/", job + below)
    assert node.step(10) == Step(42, step)
    node.restart()
    assert node.step(10) == Step(42, step)


@pytest.mark.parametrize(("stepd", "job"), LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("before", ["", "/user.slice", "/system.slice/jupyter.service", "/x"])
def test_names_that_slurm_did_not_make(node: Node, stepd: str, job: str, before: str) -> None:
    node.stepd(5, 42, stepd)
    start, _, path = f"{job}/step_0".rpartition(":")
    own = ["12:name=systemd", "11:memory,cpu"] + ([start] if before else [])
    for pid, controllers in enumerate(own, 10):
        node.process(pid, f"{controllers}:{before}{path}")
        assert node.step(pid) is None
    for pid, end in enumerate(("/step_0x ", "x/step_0", "/", "/step_", "/system/step_0"), 20):
        node.process(pid, job + end)
        assert node.step(pid) is None


def test_without_a_slurmstepd_no_name_is_believed(node: Node) -> None:
    node.stepd(5, 42)
    for pid, cgroup in enumerate((f"{V2}/step_0", f"{V1}/step_0"), 10):
        node.process(pid, cgroup)
        assert node.step(pid) is None


def test_jobs_that_have_not_registered_are_named_too(node: Node) -> None:
    node.stepd(5, 42, f"{V2}/step_0/slurm")
    node.process(10, f"0::{SCOPE}/job_43/step_1/user/task_0")
    assert node.step(10) == Step(43, "1")
    node.process(11, f"0::{SCOPE}/{SLUID}/step_1/user/task_0")
    assert node.step(11) is None, "nobody knows its number"


def test_a_process_in_two_jobs_cgroups_belongs_to_none(node: Node) -> None:
    node.stepd(5, 77, "4:freezer:/slurm/uid_0/job_77", "3:devices:/slurm/uid_0/job_77")
    node.process(10, "4:freezer:/slurm/uid_0/job_77/step_0", "3:devices:/slurm/uid_0/job_78/step_0")
    assert node.step(10) is None
    node.process(11, "4:freezer:/slurm/uid_0/job_77/step_0", "3:devices:/slurm/uid_0/job_77/step_0")
    assert node.step(11) == Step(77, "0")


def test_a_slurmstepd_that_comes_to_its_cgroup_after_it_has_registered(node: Node) -> None:
    node.stepd(5, 42)
    node.process(10, f"{V1}/step_0")
    assert node.stepds.job_of(10) is None
    node.move(5, f"{V1}/step_0")
    assert node.stepds.job_of(10) == 42
    assert node.stepds.homeless == {}


def test_a_slurmstepd_that_is_in_another_ones_job(node: Node) -> None:
    # A Slurm without cgroups of its own, whose slurmd runs in a job of another Slurm.
    node.stepd(5, 42, f"0::{SCOPE}/job_7/step_0/user/task_0")
    node.process(10, f"0::{SCOPE}/job_7/step_0/user/task_0")
    node.process(11, f"0::{SCOPE}/job_42/step_0")
    assert node.step(10) is None
    assert node.step(11) is None
    node.stepd(6, 8, f"0::{SCOPE}/{SLUID}/step_0/user/task_0")
    node.stepd(7, 9, f"0::{SCOPE}/{SLUID}/step_0/user/task_0")
    node.process(12, f"0::{SCOPE}/{SLUID}/step_0/user/task_0")
    assert node.step(12) is None, "of two jobs it is neither's"
    node.process(13, f"0::{SCOPE}/{SLUID}/step_0/user/task_0", parent=7)
    assert node.step(13) == Step(9, "0")


def test_a_sluid_is_the_job_of_the_slurmstepd_that_was_there(node: Node) -> None:
    node.stepd(5, 42, f"0::{SCOPE}/{SLUID}/step_0/slurm")
    node.stepd(6, 41, f"0::{SCOPE}/{OTHER_SLUID}/step_0/slurm")
    # Not descended from it any more: its parent has ended.
    node.process(10, f"0::{SCOPE}/{SLUID}/step_extern/user/task_0")
    assert node.step(10) == Step(42, "extern")
    node.process(11, f"0::{SCOPE}/sIIIIIIIIIIIII/step_0")
    assert node.step(11) is None
    (node.proc / "5" / "stat").unlink()  # it has ended; another step of the job goes on
    assert node.step(10) == Step(42, "extern")
    node.restart()
    assert node.step(10) is None, "nobody knows its number"


def test_the_number_of_remembered_places_is_bounded(node: Node) -> None:
    for n in range(SLUIDS + 50):
        where = f"/place{n}/s{n:013d}/step_0/slurm"
        node.process(5, f"0::{where}") if n == 0 else node.move(5, f"0::{where}")
        node.stepds.by_pid[5] = (ProcessId(5, 75), 42)
        node.stepds.look(5)  # as for each step of a day
    assert len(node.stepds.scopes) == SCOPES
    assert len(node.stepds.sluids) == SLUIDS


# -- descent -------------------------------------------------------------------------------


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
    node: Node, title: bytes, step: str | None
) -> None:
    node.stepd(5, 42)
    node.process(10, parent=5)
    (node.proc / "5" / "cmdline").write_bytes(title)
    assert node.step(10) == Step(42, step)


def test_a_cgroup_of_a_registered_job_counts_more_than_descent(node: Node) -> None:
    node.stepd(5, 42)
    node.stepd(6, 43, f"0::{SCOPE}/job_43/step_1/slurm")
    node.process(10, f"0::{SCOPE}/job_43/step_1/user/task_0", parent=5)
    assert node.step(10) == Step(43, "1")
    node.process(11, f"0::{SCOPE}/job_44/step_1/user/task_0", parent=5)
    assert node.step(11) == Step(42, None), "no step that could be ended: that is another job's"


def test_descent_knows_a_reused_pid(tmp_path: Path) -> None:
    process(tmp_path, 10)
    process(tmp_path, 11, 10)
    process(tmp_path, 12, 11)
    assert ancestors(12, tmp_path) == [12, 11, 10]
    stepd = process_id(10, tmp_path)
    assert stepd is not None
    assert Known({10: (stepd, 42)}).step_of(12, tmp_path) == Step(42, None)
    other = ProcessId(10, stepd.start + 1)
    assert Known({10: (other, 42)}).step_of(12, tmp_path) is None


def test_a_parent_whose_number_another_process_gets_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process(tmp_path, 5)
    process(tmp_path, 11, 1)
    process(tmp_path, 12, 11)
    stat = procfs.stat

    def racing(pid: int, proc: Path) -> procfs.Stat | None:
        """Its parent ends when it has been named, and a child of 5 gets that number at once."""
        found = stat(pid, proc)
        if pid == 12:
            (tmp_path / "11" / "stat").write_bytes(b"11 (b) S 5" + b" 0" * 17 + b" 500 0\n")
            (tmp_path / "12" / "stat").write_bytes(b"12 (a) S 1" + b" 0" * 17 + b" 82 0\n")
        return found

    monkeypatch.setattr(procfs, "stat", racing)
    assert ancestors(12, tmp_path) == [12]
    assert Known({5: (ProcessId(5, 75), 42)}).step_of(12, tmp_path) is None
