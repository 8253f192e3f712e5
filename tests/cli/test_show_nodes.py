"""What status and top say of jobs on several nodes."""

from __future__ import annotations

from leased.api.answers import Status
from leased.cli import show, show_jobs
from tests.cli import fake_status


def answer() -> Status:
    """Job 100 is on two nodes, as its first one sees it; job 101 as another one does."""
    made = fake_status.status()
    first, second = made["tenants"][:2]
    first["on_nodes"] = {
        "nodes": {"a": "runs", "b": None},
        "why": "gpu-leased has not answered on b",
    }
    second["on_nodes"] = {"nodes": {"b": None, "a": None}, "why": None}
    return made


def test_each_node_is_named_with_what_is_known() -> None:
    assert show_jobs.nodes(answer()) == [
        "job 100 is on several nodes: a (runs), b; gpu-leased has not answered on b",
        "job 101 is on several nodes: b, a",
    ]
    assert show_jobs.nodes(fake_status.status()) == [], "of older daemons too"


def test_many_nodes_are_told_by_what_the_job_does_there() -> None:
    made = fake_status.status()
    nodes: dict[str, str | None] = {f"n{n}": "runs" if n % 2 else "waits" for n in range(64)}
    made["tenants"][0]["on_nodes"] = {"nodes": nodes, "why": None}
    (line,) = show_jobs.nodes(made)
    assert "n0, n2, n4, n6, n8, n10 and 26 more (waits), n1, n3" in line
    assert len(line) < 200


def test_status_and_top_say_it() -> None:
    said = [str(text) for text in show.notes(answer())]
    assert all(line in said for line in show_jobs.nodes(answer()))
