"""The kernel's cap on a job's GPU memory, in directories that look like a tree of cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from spank.device_memory import cap

FIRST, SECOND = "0000:3b:00.0", "0000:86:00.0"
REGION = "drm/{}/vram0"
# The same GPU, as drivers name it. The last ones are of others.
REGIONS = ("nvidia/0000:3b:00/vidmem", "drm/0000:3b:00.0/vram", "nvidia/00000000:3B:00.0/vidmem")
OTHERS = ("nvidia/0000:3b:01/vidmem", "nvidia/0001:3b:00/vidmem", "drm/0000:3b:00.1/vram")
GIB = 1 << 30
PATHS = (
    "/system.slice/slurmstepd.scope/job_7/step_0/slurm",
    "/system.slice/n1_slurmstepd.scope/s01JQ5T8Z4Y3KC/step_batch/user/task_0",
)


class Tree:
    """Cgroups from the root down to that of the process; the job's is the one above step_*."""

    def __init__(self, root: Path, path: str = PATHS[0]):
        self.root = root
        self.own = root / "own"
        self.own.write_text(f"1:name=systemd:/\n0::{path}\n")
        (root / "dmem.capacity").write_text(
            f"{REGION.format(FIRST)} {80 * GIB}\n{REGION.format(SECOND)} {80 * GIB}\n"
        )
        self.job = root / path.partition("/step_")[0].lstrip("/")
        self.job.mkdir(parents=True)
        self.above = [self.job.parent, *self.job.parent.parents]
        self.above = self.above[: self.above.index(root) + 1]
        for folder in self.above:
            (folder / "cgroup.subtree_control").write_text("cpu memory")
        (self.job / "dmem.max").write_text(f"{REGION.format(FIRST)} max\n")

    def cap(self, **gib: int) -> str:
        places = {"first": FIRST, "second": SECOND}
        return cap({places[n]: size * GIB for n, size in gib.items()}, self.root, self.own)

    def max(self) -> str:
        return (self.job / "dmem.max").read_text()


@pytest.mark.parametrize("path", PATHS)
def test_a_job_is_kept_to_its_memory_and_the_controller_is_turned_on_above(
    tmp_path: Path, path: str
) -> None:
    tree = Tree(tmp_path, path)
    assert tree.cap(first=10) == ""
    assert tree.max() == f"{REGION.format(FIRST)} {10 * GIB}\n"
    assert {(f / "cgroup.subtree_control").read_text() for f in tree.above} == {"+dmem"}


@pytest.mark.parametrize("name", REGIONS + OTHERS)
def test_a_region_is_known_by_its_pci_address(tmp_path: Path, name: str) -> None:
    tree = Tree(tmp_path)
    (tmp_path / "dmem.capacity").write_text(f"{name} {80 * GIB}\n")
    before = tree.max()
    assert tree.cap(first=10) == ""
    assert tree.max() == (f"{name} {10 * GIB}\n" if name in REGIONS else before)


def test_a_smaller_cap_stays_and_what_is_on_is_not_turned_on_again(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    (tree.job / "dmem.max").write_text(f"{REGION.format(FIRST)} {2 * GIB}\n")
    (tmp_path / "cgroup.subtree_control").write_text("cpu dmem")
    assert tree.cap(first=10) == ""
    assert tree.max() == f"{REGION.format(FIRST)} {2 * GIB}\n"
    assert (tmp_path / "cgroup.subtree_control").read_text() == "cpu dmem"


def test_nothing_changes_without_regions_or_without_a_cap(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    before = tree.max()
    assert tree.cap() == ""
    assert cap({"0000:01:00.0": GIB}, tmp_path, tree.own) == ""
    (tmp_path / "dmem.capacity").unlink()
    assert tree.cap(first=10) == ""
    assert tree.max() == before
    assert (tmp_path / "cgroup.subtree_control").read_text() == "cpu memory"


@pytest.mark.parametrize("path", ["/", "/user.slice/job_x/step_0", "/a/job_7"])
def test_a_step_that_is_in_no_cgroup_of_slurms_is_named(tmp_path: Path, path: str) -> None:
    tree = Tree(tmp_path)
    tree.own.write_text(f"0::{path}\n")
    assert tree.cap(first=10)
    assert "max" in tree.max()


def test_what_cannot_be_written_is_said_and_no_fault(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    (tree.above[0] / "cgroup.subtree_control").unlink()
    assert "the kernel's cap on its GPU memory is not set: " in tree.cap(first=10)
