"""The units of gpu-leased under a real systemd."""

from __future__ import annotations

import json
import socket

import pytest

from tests.slurm.processes import wait_until
from tests.systemd.node import SERVICE, UNITS, Node


def test_units_have_no_mistakes(node: Node) -> None:
    said = node.container.run("systemd-analyze", "verify", *UNITS)
    assert said.stdout + said.stderr == ""


def test_service_is_ready_and_answers(node: Node) -> None:
    assert node.show(SERVICE, "Type").startswith("notify")
    assert node.show(SERVICE, "ActiveState") == "active"
    assert node.show(SERVICE, "StatusText").startswith("1 GPUs")
    said = node.container.run("gpu-leasectl", "status", "--json").stdout
    assert json.loads(said)["devices"][0]["index"] == 0


@pytest.mark.parametrize("name", ["tenant", "admin"])
def test_connecting_starts_the_daemon(node: Node, name: str) -> None:
    node.systemctl("stop", SERVICE)
    assert node.show(SERVICE, "ActiveState") == "inactive"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(node.socket(name)))
        wait_until("the daemon", lambda: node.show(SERVICE, "ActiveState") == "active")
