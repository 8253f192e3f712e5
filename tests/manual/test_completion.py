"""Completion of gpu-leasectl, as bash carries it out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from leased.cli import ctl
from leased.manual import completion

ASK = """\
set -euo pipefail
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_gpu_leasectl gpu-leasectl "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
((${#COMPREPLY[@]} == 0)) || printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "gpu-leasectl"
    path.write_text(completion.script())
    return path


def offered(script: Path, *words: str) -> set[str]:
    """What is offered for the last of the words behind gpu-leasectl."""
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK, "ask", str(script), "gpu-leasectl", *words],
        check=False,
        capture_output=True,
        text=True,
        cwd=script.parent,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.split())


def test_every_subcommand_is_offered(script: Path) -> None:
    names = ctl.all_subcommands().keys()
    assert names <= offered(script, "")
    assert offered(script, "st") == {"status"}


def test_options_are_those_of_the_subcommand(script: Path) -> None:
    assert offered(script, "drain", "--") == {"--help", "--json", "--wait", "--timeout"}
    assert offered(script, "drain", "--wait", "a") == {"all"}
    assert offered(script, "--config", "status", "top", "--on") == {"--once"}


def test_values_are_those_that_may_stand_there(script: Path) -> None:
    groups = {"user", "account", "job", "step", "device", "node"}
    assert offered(script, "report", "--by", "") == groups
    assert offered(script, "set", "quantum") == {"quantum=", "quantum-min=", "quantum-max="}
    assert offered(script, "set", "--device", "") == {"all"}
    assert offered(script, "drain", "--timeout", "") == set()


def test_files_are_offered_where_a_file_stands(script: Path) -> None:
    assert offered(script, "plot", "--from-record", "gpu") == {"gpu-leasectl"}
    assert offered(script, "simulate", "gpu") == {"gpu-leasectl"}
    assert offered(script, "--config", "gpu") == {"gpu-leasectl"}


def test_shellcheck_has_no_complaint(script: Path) -> None:
    done = subprocess.run(
        ["shellcheck", "--shell=bash", str(script)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
