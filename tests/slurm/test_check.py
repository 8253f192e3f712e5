"""gpu-leasectl check on a real Slurm: TaskProlog, whole GPUs, nodes that slurmctld alone has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leased.cli import check
from leased.cli.checks.finding import Finding
from tests.docs import documents
from tests.slurm.cluster import PrivateSlurm
from tests.slurm.leased import PRELOAD
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site
from tests.support.ports import free_port

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

    of_dynamic_nodes = ["MaxNodeCount=8", f"SlurmdPort={free_port()}"]
    # Type= in gres.conf, and no type in slurm.conf.
    with sharing_site(prepare=prepare, gpu_fields="Type=x", slurm_conf=of_dynamic_nodes) as made:
        yield made


@pytest.fixture
def look(site: Site, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Finding]]:
    for name, value in site.slurm.env.items():
        monkeypatch.setenv(name, value)
    return lambda node=None: {f.id: f for f in check.run(site.leased.config, None, node)}


@pytest.mark.parametrize("keeps", [True, False])
def test_a_task_prolog_keeps_our_library_or_is_found(
    site: Site, look: Callable[..., dict[str, Finding]], keeps: bool
) -> None:
    line = documents.shown("docs/user.md", "echo ")
    write(site.slurm.prefix / "task_prolog", line if keeps else line.replace(":$LD_PRELOAD", ""))
    said = site.batch(BOTH, "--gres=shard:1").splitlines()
    for where in ("batch ", "step "):
        (preload,) = [each.removeprefix(where) for each in said if each.startswith(where)]
        # What a step inherits from its script has the other one already.
        assert set(preload.split(":")) == {ANOTHER, *([str(PRELOAD)] if keeps else [])}
    assert look()["task-prolog"].level == ("ok" if keeps else "fault")


def test_a_script_puts_a_library_before_ours(site: Site) -> None:
    write(site.slurm.prefix / "task_prolog", ":")
    script = documents.shown("docs/user.md", "export LD_PRELOAD=")
    said = site.batch(f"{script}\nprintenv LD_PRELOAD", "--gres=shard:1")
    assert f"{ANOTHER}:{PRELOAD}" in said.splitlines()


def test_a_gpu_given_out_whole_while_a_shard_is_used_is_found(
    site: Site, look: Callable[..., dict[str, Finding]]
) -> None:
    asleep = ("-o", "/dev/null", "--wrap=exec sleep 600")
    jobs = [site.slurm.sbatch(f"--gres={gres}", *asleep) for gres in ("shard:1", "gpu:1")]
    found = look(site.slurm.node)
    try:
        site.wait_for_tenant(jobs[0])
        if found["gres-whole"].level == "ok":
            assert site.slurm.job(jobs[1])["JobState"] == "PENDING"
        else:
            wait_until("both to run", lambda: are_running(site, jobs))
    finally:
        site.slurm.run("scancel", *map(str, jobs))
    assert found["gres-conf"].level == found["gres-count"].level == "ok"


def are_running(site: Site, jobs: list[int]) -> bool:
    return {site.slurm.job(job)["JobState"] for job in jobs} == {"RUNNING"}


@pytest.fixture(scope="module")
def dynamic(site: Site) -> Iterator[str]:
    """A node that `slurmd -Z` has told slurmctld; its name has a domain."""
    name = "n9.example.org"
    with (site.slurm.layout.etc / "gres.conf").open("a") as out:
        out.write(f"NodeName={name} Name=gpu Type=x File={site.slurm.layout.gpu_files[0]}\n")
    conf = "Gres=gpu:x:1,shard:3 NodeAddr=127.0.0.1 CPUs=2"
    site.slurm.start_slurmd(name, "-Z", "--conf", conf)
    try:
        wait_until("the node to be there", lambda: site.slurm.node_state(name) == "idle")
        yield name
    finally:
        site.slurm.stop_daemon(f"slurmd-{name}")


def test_a_node_that_slurm_conf_does_not_have(
    dynamic: str, look: Callable[..., dict[str, Finding]]
) -> None:
    found = look(dynamic)
    assert found["node"].text == f"this is node {dynamic}"
    assert found["gres-count"].text == "3 shards on 1 GPU: at most 3 jobs can be on one"
    assert found["gres-whole"].level == "ok"
    missing = look("n8.example.org")["node"]
    assert missing.level == "warning"
    assert "--node" not in missing.remedy
