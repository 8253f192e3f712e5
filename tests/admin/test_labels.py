"""Labels of --gpu-share where a job starts: one that Slurm has misplaced is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leased.base.errors import Refused
from leased.chains import membership
from leased.chains.membership import JOBS_MOST
from tests.support.node_requests import Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path, exclusion=True)
    yield made
    made.store.close()


@pytest.mark.parametrize(
    ("there", "comes", "words"),
    [
        ("exclusion:x", "", "only jobs with exclusion:x may be there"),
        ("", "exclusion:x", "a job without exclusion:x is there"),
        ("exclusion:x", "exclusion:y", "a job without exclusion:y is there"),
        ("anti-affinity:n", "anti-affinity:n,tq:5", "a job with anti-affinity:n is there"),
    ],
)
def test_a_job_is_refused_where_labels_forbid_it(
    node: Node, there: str, comes: str, words: str
) -> None:
    node.register(1, there)
    with pytest.raises(Refused, match=f"Slurm has given the job GPU 0, but {words}") as said:
        node.register(2, comes)
    assert "submit the job again" in said.value.sentence()
    assert 2 not in node.leases.tenants
    assert node.register(2, comes, gpus=(1,)), "the other GPU is free"


@pytest.mark.parametrize(
    ("there", "comes"),
    [
        ("exclusion:x", "exclusion:x"),
        ("anti-affinity:n", "anti-affinity:m"),
        ("affinity:a", "affinity:a"),
        ("affinity:a", ""),
        ("affinity:none,exclusion:none", "anti-affinity:none"),
    ],
)
def test_jobs_whose_labels_go_together_share_a_gpu(node: Node, there: str, comes: str) -> None:
    node.register(1, there)
    assert node.register(2, comes)


def test_jobs_with_one_affinity_are_on_one_gpu_of_the_node(node: Node) -> None:
    node.register(1, "affinity:a")
    with pytest.raises(Refused, match="affinity:a are on another one"):
        node.register(2, "affinity:a", gpus=(1,))
    assert node.register(3, "affinity:b", gpus=(1,))


def test_a_further_step_is_held_to_the_labels_of_its_job(node: Node) -> None:
    node.register(1, "exclusion:x")
    node.register(2, gpus=(1,))
    with pytest.raises(Refused, match="given the job GPU 1, but a job without exclusion:x"):
        node.register(1, "exclusion:x", gpus=(1,))
    assert len(node.leases.tenants[1].gang) == 1


def test_labels_count_after_a_restart_and_end_with_their_job(node: Node) -> None:
    node.register(1, "exclusion:x")
    node.restart()
    with pytest.raises(Refused, match="only jobs with exclusion:x"):
        node.register(2)
    node.store.close_tenant(1, {})
    node.restart()
    assert node.register(2)


def test_the_longest_labels_beside_all_other_keys_are_taken_and_stored(node: Node) -> None:
    long = "x" * 63
    text = (
        f"tq:30000ms,lock:auto,mem:0.123456789012,oversub:off,memory:managed,request:0.123456,"
        f"limit:0.234567,affinity:{long},anti-affinity:{long},exclusion:{long},"
        f"chain:{long}"
    )
    before = node.register(1, text).given
    assert {before.affinity, before.anti_affinity, before.exclusion, before.chain} == {long}
    node.restart()
    assert node.leases.tenants[1].given == before


def test_a_chain_is_joined_by_name_and_full_at_its_limit(node: Node) -> None:
    for job in range(1, JOBS_MOST + 1):
        node.register(job, "chain:c")
    with pytest.raises(Refused, match="chain:c has 16 jobs on this GPU already"):
        node.register(90, "chain:c")
    assert node.register(91, "chain:d")
    assert node.register(92, "chain:c", gpus=(1,)), "another GPU's chain is another one"
    with pytest.raises(Refused, match="chain:c has 16 jobs"):
        node.register(92, "chain:c", gpus=(0,))
    tenants = node.leases.tenants
    assert len(membership.members(tenants[1], tenants.values())) == JOBS_MOST
    assert membership.members(tenants[92], tenants.values()) == [tenants[92]]


def test_exclusion_is_refused_unless_the_site_allows_it(tmp_path: Path) -> None:
    """One shard would be the whole GPU, and others' jobs would fail beside it."""
    made = Node(tmp_path)
    with pytest.raises(Refused, match="exclusion:x is not allowed on this site") as said:
        made.register(1, "exclusion:x")
    assert "--gres=gpu:1" in said.value.sentence()
    assert made.register(1, "affinity:x,anti-affinity:y")
    made.store.close()
