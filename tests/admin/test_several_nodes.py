"""Which nodes a job on several has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leased.admin import several_nodes
from leased.base.errors import Refused
from leased.config import options
from leased.config.config import Config
from leased.config.options import Resolved

PLAIN_OPTIONS = Config().defaults


def on(_: tuple[str, ...]) -> None:
    """Daemons speak with each other."""


def off(_: tuple[str, ...]) -> str:
    return "peers.port is not set"


def test_a_job_on_one_node_has_no_names() -> None:
    assert several_nodes.of({"nodes": 1}, off) == ()


def test_the_names_keep_their_order() -> None:
    assert several_nodes.of({"nodes": 2, "node_names": ["b", "a"]}, on) == ("b", "a")


@pytest.mark.parametrize(
    ("request_", "refuses", "why"),
    [
        ({"nodes": 2, "node_names": ["a", "b"]}, off, "peers.port is not set"),
        ({"nodes": 65, "node_names": []}, on, "at most 64 nodes"),
        ({"nodes": 2}, on, "node_names has 0 names of 2 nodes"),
        ({"nodes": 2}, off, "peers.port is not set"),
        ({"nodes": 2, "node_names": ["a"]}, on, "node_names has 1 names of 2 nodes"),
        ({"nodes": 2, "node_names": ["a", "a"]}, on, "node_names has 1 names of 2 nodes"),
        ({"nodes": 2, "node_names": ["a", ""]}, on, "a list of names"),
        ({"nodes": 2, "node_names": ["a", 7]}, on, "a list of names"),
        ({"nodes": 2, "node_names": ["a", "b" * 300]}, on, "a list of names"),
        ({"nodes": 2, "node_names": ["a", "b\n"]}, on, "a list of names"),
    ],
)
def test_what_is_no_job_on_several_nodes_is_refused(
    request_: dict[str, object], refuses: Callable[[tuple[str, ...]], str | None], why: str
) -> None:
    with pytest.raises(Refused, match=why):
        several_nodes.of(request_, refuses)


@pytest.mark.parametrize(
    "said", ["lock:off", "limit:0.5", "request:0.5", "class:online", "chain:x"]
)
def test_what_only_jobs_on_one_node_can_have_is_refused(said: str) -> None:
    given = Resolved.of(options.parse(said), PLAIN_OPTIONS)
    with pytest.raises(Refused, match="a job on several nodes cannot have"):
        several_nodes.check(given)
    several_nodes.check(Resolved.of(options.parse(""), PLAIN_OPTIONS))


def test_a_further_step_cannot_widen_it() -> None:
    with pytest.raises(Refused, match="cannot have more GPUs than the job's first step"):
        several_nodes.check_more(("a", "b"), {"GPU-1": 1})
    several_nodes.check_more(("a", "b"), {})
    several_nodes.check_more((), {"GPU-1": 1})
