"""What the daemon writes into its node's Comment, and when, with Slurm's commands in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from leased.admin import node_rules
from leased.admin.user_limits import UserLimits
from leased.config.config import Config
from leased.node import rules_report
from leased.node.rules_report import RENEW_S, WIDTH, RulesReport
from leased.slurm.commands import Slurm

NAME = "n1"


class Commands(Slurm):
    """sinfo and scontrol. comment: the node's; None: there is no such node. rows: of sinfo, one for
    each partition. fails: what scontrol says."""

    def __init__(self) -> None:
        super().__init__({})
        self.comment: str | None = ""
        self.rows = 1
        self.fails = ""
        self.written: list[str] = []

    async def run(self, *command: str) -> tuple[int, str, str]:
        if command[0] == "sinfo":
            assert command[-1] == f"Comment:{WIDTH}"
            if self.comment is None:
                return 0, "", ""
            row = (self.comment or "(null)").encode()[:WIDTH].ljust(WIDTH)
            return 0, (row + b"\n").decode(errors="replace") * self.rows, ""
        assert command[:3] == ("scontrol", "update", f"nodename={NAME}")
        if self.fails:
            return 1, "", self.fails
        self.comment = command[3].removeprefix("comment=")
        self.written.append(self.comment)
        return 0, "", ""


class Node:
    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        (tmp_path / "slurm.conf").write_text("NodeName=n1\n")
        monkeypatch.setenv("SLURMD_NODENAME", NAME)
        self.slurm = Commands()
        self.config = Config(slurm_conf=str(tmp_path / "slurm.conf"), tell_placer=True)
        self.now = 1000.0
        clock = SimpleNamespace(monotonic=lambda: self.now, time=lambda: 1_800_000_000 + self.now)
        monkeypatch.setattr("leased.node.rules_report.time", clock)
        self.report = RulesReport(
            self.slurm, lambda: self.config, lambda: UserLimits.of(self.config)
        )

    def beat(self, times: int = 1) -> None:
        for _ in range(times):
            asyncio.run(self.report.beat())


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_it_writes_at_first_when_it_changes_and_before_it_is_too_old(node: Node) -> None:
    node.beat(3)
    assert len(node.slurm.written) == 1
    node.config = replace(node.config, exclusion=True)
    node.beat(3)
    assert [" exclusion=yes " in text for text in node.slurm.written] == [False, True]
    node.now += RENEW_S
    node.beat(3)
    assert len(node.slurm.written) == 3
    assert node_rules.VALID_S >= 3 * RENEW_S


@pytest.mark.parametrize("rows", [1, 3])
def test_what_is_there_stays(node: Node, rows: int) -> None:
    node.slurm.comment, node.slurm.rows = "rack 7\n\u00fc  x", rows
    node.beat()
    assert node.slurm.written[0].startswith("rack 7\n\u00fc  x [gpu-leased 1 ")
    node.config = replace(node.config, tell_placer=False)
    node.beat(2)
    assert node.slurm.written[1:] == ["rack 7\n\u00fc  x"]


def test_nothing_is_asked_or_written_where_the_site_does_not_want_it(node: Node) -> None:
    node.config = replace(node.config, tell_placer=False)
    node.slurm.comment = "[gpu-leased of somebody]"
    node.beat(3)
    assert node.slurm.written == []


@pytest.mark.parametrize(
    ("comment", "fails", "words"),
    [
        (None, "", "Slurm has no node n1"),
        ("x" * WIDTH, "", "the Comment of n1 is too long, or is not UTF-8; make it shorter"),
        ("x\ufffd", "", "the Comment of n1 is too long, or is not UTF-8"),
        ("", "slurm_update error:\nInvalid user id", "scontrol fails: slurm_update error: Invalid"),
    ],
)
def test_a_fault_is_said_once_and_tried_again_later(
    node: Node, caplog: pytest.LogCaptureFixture, comment: str | None, fails: str, words: str
) -> None:
    node.slurm.comment, node.slurm.fails = comment, fails
    node.beat(3)
    node.now += rules_report.AGAIN_S
    node.beat(3)
    (record,) = caplog.records
    assert words in record.getMessage()
    assert node.slurm.written == []
    node.slurm.comment, node.slurm.fails = "", ""
    node.beat()
    assert node.slurm.written == []
    node.now += rules_report.AGAIN_S
    node.beat()
    assert len(node.slurm.written) == 1


def test_without_a_name_in_slurm_it_says_so(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("SLURMD_NODENAME")
    node.beat()
    assert "has no node for this host" in caplog.text
    node.config = replace(node.config, slurm_conf="/nowhere/slurm.conf")
    node.now += rules_report.AGAIN_S
    node.beat()
    assert "No such file" in caplog.text
