"""A site's TaskProlog on a real Slurm: what it prints is the LD_PRELOAD of tasks and scripts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leased.cli import check
from tests.docs import documents
from tests.slurm.cluster import PrivateSlurm
from tests.slurm.leased import PRELOAD
from tests.slurm.site import Site, sharing_site

BOTH = "echo batch $LD_PRELOAD\nsrun sh -c 'echo step $LD_PRELOAD'\n"
ANOTHER = "/opt/site/lib/libjemalloc.so"  # it need not be there to be in LD_PRELOAD


def write(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    def prepare(slurm: PrivateSlurm) -> None:
        slurm.prefix.mkdir(parents=True, exist_ok=True)
        slurm.extra_conf.append(f"TaskProlog={slurm.prefix}/task_prolog")
        write(slurm.prefix / "task_prolog", ":")

    with sharing_site(prepare=prepare) as made:
        yield made


@pytest.mark.parametrize("keeps", [True, False])
def test_a_task_prolog_keeps_our_library_or_is_found(
    site: Site, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    line = documents.shown("docs/user.md", "echo ")
    write(site.slurm.prefix / "task_prolog", line if keeps else line.replace(":$LD_PRELOAD", ""))
    said = site.batch(BOTH, "--gres=shard:1").splitlines()
    for where in ("batch ", "step "):
        (preload,) = [each.removeprefix(where) for each in said if each.startswith(where)]
        # What a step inherits from its script has the other one already.
        assert set(preload.split(":")) == {ANOTHER, *([str(PRELOAD)] if keeps else [])}
    for name, value in site.slurm.env.items():
        monkeypatch.setenv(name, value)
    (found,) = [f for f in check.run(site.leased.config, None) if f.id == "task-prolog"]
    assert found.level == ("ok" if keeps else "fault")


def test_a_script_puts_a_library_before_ours(site: Site) -> None:
    write(site.slurm.prefix / "task_prolog", ":")
    script = documents.shown("docs/user.md", "export LD_PRELOAD=")
    said = site.batch(f"{script}\nprintenv LD_PRELOAD", "--gres=shard:1")
    assert f"{ANOTHER}:{PRELOAD}" in said.splitlines()
