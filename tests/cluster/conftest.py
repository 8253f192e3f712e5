"""A cluster for each file: two booted machines with Slurm and GPUs, and nothing of us yet."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.cluster import network
from tests.cluster.machine import UNIT, Machine, node_tree
from tests.cluster.site import Site
from tests.docs import documents
from tests.systemd import container


def cannot_boot() -> str:
    """Why no two machines can be booted here; run.sh asks before it builds anything."""
    return container.why_not() or network.why_not()


def why_not() -> str:
    reason = cannot_boot()
    if not reason and not node_tree(os.environ.get("GPU_LEASE_CLUSTER", "")).is_dir():
        reason = "there is no tree of a node: `make test-cluster` makes one"
    return reason


@pytest.fixture(scope="module")
def bare() -> Iterator[Site]:
    """The cluster before us."""
    if reason := why_not():
        pytest.skip(reason)
    tree = node_tree(os.environ["GPU_LEASE_CLUSTER"])
    with (
        network.Network() as bridge,
        Machine("node1", tree, bridge) as head,
        Machine("node2", tree, bridge) as other,
    ):
        site = Site([head, other])
        site.set_up()
        yield site


def five_lines() -> list[str]:
    """What README says to do on each node."""
    install, *others = documents.section("README.md", "How a site installs it")
    return [install.replace("./", "./now/"), *others]


@pytest.fixture(scope="module")
def site(bare: Site) -> Site:
    """The cluster after README's five lines on each node."""
    for machine in bare.machines:
        install, *others = five_lines()
        machine.shell(install)
        assert machine.show(UNIT, "ActiveState") == "inactive"
        assert machine.show(UNIT, "UnitFileState") == "disabled"
        for line in others:
            print(f"{machine.name}$ {line}\n{machine.shell(line)}")
    bare.await_idle()
    return bare


@pytest.fixture(autouse=True)
def _journals(bare: Site) -> Iterator[None]:
    """What a failed step shows besides."""
    yield
    for machine in bare.machines:
        print(machine.name, machine.journal(UNIT)[-3000:])
