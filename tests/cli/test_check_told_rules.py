"""gpu-leasectl check: whether the placer knows what nodes allow."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Union

import pytest

from leased.admin.node_rules import NodeRules, written
from leased.admin.user_limits import UserLimits
from leased.cli.checks import told_rules
from leased.cli.checks.finding import Finding
from leased.config import config, options
from leased.placer import alive
from tests.cli.check_node import HOST, Node, node
from tests.cli.test_check_placer import folder
from tests.cli.test_check_site import on_controller

__all__ = ["folder", "node"]


def told(age: int = 0, site: str = "rack 7") -> str:
    rules = NodeRules(UserLimits.of(config.Config()), options.PLAIN)
    return written(site, rules, int(time.time()) - age)


Look = Callable[[Union[str, OSError]], Finding]


@pytest.fixture
def look(node: Node, monkeypatch: pytest.MonkeyPatch) -> Look:
    """What is found of a node with this Comment, which tells the placer."""
    node.edit("gpu-leased.toml", "[daemon]\n", "[daemon]\ntell_placer = true\n")

    def run(comment: str | OSError) -> Finding:
        def comment_of(_: object, name: str) -> str:
            assert name == HOST
            if isinstance(comment, OSError):
                raise comment
            return comment

        monkeypatch.setattr(told_rules, "comment_of", comment_of)
        node.look()
        return node.found["node-rules"]

    return run


def test_a_node_that_tells(look: Look) -> None:
    found = look(told())
    assert (found.level, found.remedy) == ("ok", "")
    assert f"the Comment of {HOST} tells gpu-lease-placer what it allows" in found.text


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("rack 7", "lacks the rules of this node"),
        (told(age=90_000), "not believed: its time is more than a day from now"),
        (told().replace("lock_off=yes", "lock_off=7"), "not believed: its lock_off is 7"),
        (told().replace("[gpu-leased 1", "[gpu-leased 8"), "not believed: it is of version 8"),
        (OSError("Slurm has no node x"), "was not read: Slurm has no node x"),
    ],
    ids=["nothing", "old", "damaged", "of another version", "unknown"],
)
def test_a_node_whose_rules_the_placer_does_not_know(
    look: Look, comment: str | OSError, words: str
) -> None:
    found = look(comment)
    assert found.level == "warning"
    assert found.remedy
    assert words in found.text


def test_a_node_that_does_not_tell_is_not_looked_at(node: Node) -> None:
    node.look()
    assert "node-rules" not in node.found


def of_all(node: Node, monkeypatch: pytest.MonkeyPatch, **comments: str) -> Finding:
    """What is found on slurmctld's host, where nodes have these Comments."""
    shared = {"state": "idle", "gres": "gpu:1,shard:4", "partitions": ["gpu"]}
    nodes = [{"name": name, "comment": text} | shared for name, text in comments.items()]
    nodes.append({"name": "login", "state": "idle", "gres": ""})
    bin_ = node.root / "bin"
    bin_.mkdir()
    (bin_ / "answer").write_text(json.dumps({"nodes": nodes}))
    (bin_ / "sinfo").write_text(f"#!/bin/sh\nexec cat {bin_}/answer\n")
    (bin_ / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:/usr/bin:/bin")
    (found,) = [each for each in on_controller(node) if each.id == "placer-rules"]
    assert bool(found.remedy) == (found.level != "ok")
    return found


@pytest.mark.parametrize(
    ("comments", "level_and_words"),
    [
        ({"n1": told(), "n2": told()}, "ok: all nodes tell gpu-lease-placer"),
        ({"n1": "", "n2": "rack 7"}, "ok: no node tells gpu-lease-placer"),
        ({"n1": told(), "n2": "", "n3": ""}, "warning: n2, n3 told none"),
        (
            {"n1": told(), "n2": told(age=90_000)},
            "warning: those of n2 are not believed: its time is more than a day from now",
        ),
        ({f"n{n}": told()[:90] + "]" for n in range(9)}, "warning: those of n7 "),
    ],
    ids=["all", "none", "some", "old", "many"],
)
def test_where_the_placer_runs(
    node: Node,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    comments: dict[str, str],
    level_and_words: str,
) -> None:
    level, _, words = level_and_words.partition(": ")
    alive.write(folder, int(time.time()), 300)
    found = of_all(node, monkeypatch, **comments)
    assert found.level == level
    assert words in found.text
    assert "n8" not in found.text


def test_where_the_placer_does_not_run_nothing_is_asked(node: Node, folder: Path) -> None:
    assert folder.is_dir()
    assert "placer-rules" not in {each.id for each in on_controller(node)}


def test_a_slurmctld_that_does_not_answer(
    node: Node, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive.write(folder, int(time.time()), 300)
    monkeypatch.setenv("PATH", str(node.root))
    (found,) = [each for each in on_controller(node) if each.id == "placer-rules"]
    assert found.level == "warning"
    assert "was not looked at: sinfo cannot be run" in found.text
