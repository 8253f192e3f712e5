"""gpu-leasectl check, on the host of slurmctld: whether gpu-lease-placer runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from leased.cli.checks import placer
from leased.cli.checks.finding import Finding
from leased.matching.model import Model
from leased.placer import alive
from tests.cli.check_node import Node, node
from tests.cli.test_check_site import on_controller, put_scripts

__all__ = ["node"]


@pytest.fixture
def folder(node: Node, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The placer's, where the site has told both sides of it. Its unit is not active."""
    made = node.root / "placer"
    made.mkdir()
    put_scripts(node)
    node.edit("gpu_share.lua", "/run/gpu-lease-placer/alive", f"{made}/alive")
    toml = node.root / "etc" / "gpu-leased.toml"
    toml.write_text(f'{toml.read_text()}\n[placer]\nruntime_dir = "{made}"\n')
    monkeypatch.setattr(placer, "unit_state", lambda: "inactive")
    return made


def look(node: Node) -> Finding:
    (found,) = [finding for finding in on_controller(node) if finding.id == "placer"]
    assert bool(found.remedy) == (found.level != "ok")
    return found


def test_a_placer_that_runs(node: Node, folder: Path) -> None:
    alive.write(folder, int(time.time()), 300)
    assert look(node) == Finding("placer", "ok", "gpu-lease-placer runs")


def test_a_site_without_it(node: Node, folder: Path) -> None:  # noqa: ARG001
    found = look(node)
    assert found.level == "ok"
    assert "does not run here" in found.text


@pytest.mark.parametrize("text", ["", "soon\n", "12 300\n", "99999999999 300\n"])
def test_an_old_sign_of_life(node: Node, folder: Path, text: str) -> None:
    (folder / alive.NAME).write_text(text)
    found = look(node)
    assert found.level == "warning"
    assert "the last sign of life of gpu-lease-placer" in found.text


@pytest.mark.parametrize("state", ["failed", "activating", "active"])
def test_a_unit_that_fails(
    node: Node,
    folder: Path,  # noqa: ARG001
    state: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placer, "unit_state", lambda: state)
    found = look(node)
    assert found.level == "warning"
    assert f"is {state} and has given no sign of life" in found.text


def test_a_sign_of_life_at_another_place(node: Node, folder: Path) -> None:
    alive.write(folder, int(time.time()), 300)
    node.edit("gpu_share.lua", f"{folder}/alive", "/run/elsewhere/alive")
    found = look(node)
    assert found.level == "warning"
    assert "looks for gpu-lease-placer at /run/elsewhere/alive" in found.text


def test_rules_without_a_part_for_it(node: Node, folder: Path) -> None:
    node.edit("gpu_share.lua", f'local ALIVE = "{folder}/alive"', "")
    assert "has no part for gpu-lease-placer" in look(node).text


@pytest.mark.parametrize(
    ("script", "state"), [("echo failed", "failed"), ("echo activating; exit 1", ""), (None, "")]
)
def test_systemd_is_asked(
    script: str | None, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if script is not None:
        program = tmp_path / "systemctl"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    assert placer.unit_state() == state


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ((False, False), "by best fit, as scipy is not here"),
        ((True, False), "measured on Card"),
        ((True, True), "measured on Card, which is no card"),
    ],
)
def test_how_offline_jobs_are_matched(
    node: Node, folder: Path, monkeypatch: pytest.MonkeyPatch, chosen: tuple[bool, bool], words: str
) -> None:
    there, emulated = chosen
    monkeypatch.setattr(placer, "is_possible", lambda: there)
    monkeypatch.setattr("leased.matching.model.read", lambda _: Model({}, "Card", emulated))
    assert [each for each in on_controller(node) if each.id == "matching"] == []
    alive.write(folder, int(time.time()), 300)
    (found,) = [each for each in on_controller(node) if each.id == "matching"]
    assert (found.level, found.remedy) == ("ok", "")
    assert words in found.text
    assert ("no card" in found.text) == (there and emulated)
