"""NVML and the configuration at fault while eight jobs run: everybody goes on, and it is said."""

from __future__ import annotations

import pytest

from leased.api.client import ask
from tests.fault.harness import FaultyNode
from tests.support.spoilt import KINDS, spoil


def nvml(node: FaultyNode, lines: str) -> None:
    """What the emulated NVML does wrong from now on; see EmulatedGpu.nvml."""
    folder = node.leased.prefix.parent / "gpu"
    (folder / "nvml-faults.new").write_text(lines)
    (folder / "nvml-faults.new").replace(folder / "nvml-faults")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("0 hang\n", "NVML answers for no GPU"),
        ("0 crash\n", "the process that asks NVML has ended"),
        ("0 error\n", "takes no new jobs: NVML says: Unknown Error"),
    ],
    ids=["hang", "crash", "error"],
)
def test_nvml_while_jobs_run(node: FaultyNode, lines: str, words: str) -> None:
    with node.everybody_goes_on():
        nvml(node, lines)
        node.wait_said(words)
    with node.everybody_goes_on():
        node.restart()
    assert node.said(words) <= 2, "once for each daemon"


@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_at_fault_while_jobs_run(node: FaultyNode, kind: str) -> None:
    with node.everybody_goes_on():
        spoil(node.leased.config, kind)
        assert ask(node.leased.admin_socket, {"op": "reload"})["fault"]
    assert node.said("the old configuration stays") == 1
