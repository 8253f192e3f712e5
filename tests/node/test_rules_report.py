"""What the daemon writes into its node's Comment, and when, with Slurm's commands in memory."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from leased.admin import node_rules
from leased.admin.user_limits import UserLimits
from leased.config.config import Config, DeviceConfig
from leased.gpus.devices import Gpu
from leased.node import rules_report
from leased.node.rules_report import CHECK_S, RENEW_S, RulesReport
from leased.slurm.commands import Slurm
from leased.slurm.node_comment import LONGEST

NAME = "n1"


class Commands(Slurm):
    """sinfo and scontrol. comment: the node's; None: there is no such node. json: whether scontrol
    knows it. rows: of sinfo, one for each partition. fails: what scontrol says. edits: what
    somebody else writes right after each change of the daemon's."""

    def __init__(self, *, json: bool) -> None:
        super().__init__({})
        self.json = json
        self.comment: str | None = ""
        self.rows = 1
        self.fails = ""
        self.edits: list[str | None] = []
        self.written: list[str] = []
        self.name = NAME

    async def run(self, *command: str) -> tuple[int, str, str]:
        if command[:2] == ("scontrol", "show"):
            assert command[2:] == ("nodes", self.name, "--json")
            return (0, *self._shown()) if self.json else (1, "", "unrecognized option '--json'")
        if command[0] == "sinfo":
            return 0, self._row(command[-1]), ""
        assert command[:3] == ("scontrol", "update", f"nodename={self.name}")
        if self.fails:
            return 1, "", self.fails
        self.comment = command[3].removeprefix("comment=")
        self.written.append(self.comment)
        if self.edits and (edit := self.edits.pop(0)) is not None:
            self.comment = edit
        return 0, "", ""

    def _shown(self) -> tuple[str, str]:
        others = [{"name": "n0", "comment": "of another"}, {"name": "x"}]
        ours = [] if self.comment is None else [{"name": self.name, "comment": self.comment}]
        return json.dumps({"nodes": [*others, *ours], "errors": []}), ""

    def _row(self, column: str) -> str:
        assert column == f"Comment:{LONGEST}"
        if self.comment is None:
            return ""
        row = (self.comment or "(null)").encode()[:LONGEST].ljust(LONGEST)
        return (row + b"\n").decode(errors="replace") * self.rows


class Node:
    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, json: bool):
        (tmp_path / "slurm.conf").write_text("NodeName=n2\n")
        monkeypatch.setenv("SLURMD_NODENAME", NAME)
        self.slurm = Commands(json=json)
        self.config = Config(slurm_conf=str(tmp_path / "slurm.conf"), tell_placer=True)
        self.gpus = [Gpu(index, f"GPU-{index}", "H200", 1 << 30, 1 << 30) for index in range(3)]
        self.now = 1000.0
        self.clock = 1_800_000_000.0
        clock = SimpleNamespace(monotonic=lambda: self.now, time=lambda: self.clock + self.now)
        monkeypatch.setattr("leased.node.rules_report.time", clock)
        self.report = RulesReport(
            self.slurm,
            lambda: self.config,
            lambda: UserLimits.of(self.config),
            lambda: self.gpus,
        )

    def beat(self, times: int = 1) -> None:
        for _ in range(times):
            asyncio.run(self.report.beat())


@pytest.fixture(params=[True, False], ids=["json", "22.05"])
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Node:
    return Node(tmp_path, monkeypatch, json=request.param)


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


def test_it_says_whose_jobs_may_be_together_on_gpus_under_mps(node: Node) -> None:
    """By Slurm's index, whether the configuration names the GPU by that, by UUID or not at all."""
    node.beat()
    assert "mps_together" not in node.slurm.written[0]
    under_mps = replace(node.config.device, space="mps")
    named = {"1": DeviceConfig(), "GPU-2": replace(under_mps, mps_together="any")}
    node.config = replace(node.config, device=under_mps, devices=named)
    node.beat()
    assert node.slurm.written[1].endswith(" mps_together=0:user,2:any]")


def test_what_others_took_away_is_written_again(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    node.beat()
    node.slurm.comment = "rack 8"
    node.beat(3)
    assert len(node.slurm.written) == 1
    node.now += CHECK_S
    node.beat(3)
    assert node.slurm.written[1:] == [f"rack 8 {node.slurm.written[0]}".replace("01000", "01600")]
    (record,) = caplog.records
    assert "was written into the Comment of n1 is no longer there" in record.getMessage()


def test_what_others_write_beside_it_stays_without_a_change(node: Node) -> None:
    node.beat()
    node.slurm.comment = f"{node.slurm.written[0]} rack 8"
    node.now += CHECK_S
    node.beat(3)
    assert len(node.slurm.written) == 1


def test_who_writes_at_the_same_time_is_named_in_the_journal_and_it_is_written_again(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.slurm.edits = ["rack 8"]
    node.beat()
    assert "somebody else wrote the Comment of n1 at the same time" in caplog.text
    node.beat(2)
    assert [text.partition("[")[0] for text in node.slurm.written] == ["", "rack 8 "]


@pytest.mark.parametrize("jump", [-100_000, 100_000])
def test_a_clock_that_is_set_is_written(node: Node, jump: int) -> None:
    node.beat()
    node.clock += jump
    node.beat(2)
    assert len(node.slurm.written) == 2
    assert str(int(node.clock + node.now)) in node.slurm.written[1]


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
        ("x" * LONGEST, "", "the Comment of n1 is too long, or is not UTF-8; make it shorter"),
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


def test_a_node_that_slurm_conf_does_not_have_is_told_too(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`slurmd -Z` gives it the host's name, with its domain."""
    monkeypatch.delenv("SLURMD_NODENAME")
    node.slurm.name = "n1.example.org"
    monkeypatch.setattr("socket.gethostname", lambda: node.slurm.name)
    node.beat()
    assert len(node.slurm.written) == 1


def test_without_a_name_in_slurm_it_says_so(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("SLURMD_NODENAME")
    monkeypatch.setattr("socket.gethostname", lambda: NAME)
    node.slurm.comment = None
    node.beat()
    assert f"Slurm has no node {NAME}" in caplog.text
    node.config = replace(node.config, slurm_conf="/nowhere/slurm.conf")
    node.now += rules_report.AGAIN_S
    node.beat()
    assert "No such file" in caplog.text
