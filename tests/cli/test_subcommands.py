"""Subcommands of gpu-leasectl: a file in leased/cli/subcommands is all that a new one needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from leased.cli import ctl, subcommands
from leased.cli.subcommand import ExitStatus
from tests.conftest import ROOT

MODULE = """
from leased.cli.subcommand import ExitStatus
from leased.cli.subcommand import WrongUsage

SUMMARY = "it counts"


def run(chosen):
    print("count", chosen.count)
    if chosen.count < 0:
        raise WrongUsage("less than nothing", "count from 0")
    return ExitStatus.DONE


def add_arguments(parser):
    parser.add_argument("--count", type=int)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One more folder of subcommands."""
    monkeypatch.setattr(subcommands, "__path__", [*subcommands.__path__, str(tmp_path)])
    return tmp_path


def test_a_file_is_enough(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "added.py").write_text(MODULE)
    assert ctl.main(["added", "--count", "3"]) == ExitStatus.DONE
    assert capsys.readouterr().out == "count 3\n"
    assert ctl.main(["added", "--count", "-3"]) == ExitStatus.USAGE
    assert capsys.readouterr().err == "gpu-leasectl: less than nothing; count from 0\n"


def test_a_file_without_a_subcommand_is_named(folder: Path) -> None:
    (folder / "empty_by_a_test.py").touch()
    with pytest.raises(AttributeError, match="empty_by_a_test"):
        ctl.make_parser()


def test_every_subcommand_is_documented() -> None:
    text = (ROOT / "docs" / "gpu-leasectl.md").read_text()
    titles = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    documented = {name.strip() for title in titles for name in title.split(",")}
    assert ctl.all_subcommands().keys() <= documented


def test_no_subcommand_brings_an_event_loop_before_it_runs() -> None:
    """Users wait for the start of each command; asyncio alone would be a quarter of it."""
    code = "from leased.cli import ctl; ctl.all_subcommands(); import sys"
    code += "; print('asyncio' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "False\n"
