"""A network of our own for booted machines: a bridge in a network namespace."""

from __future__ import annotations

import subprocess

BRIDGE = "gpulbr0"
GATEWAY = "10.77.0.254/24"
SET_UP = f"""
set -e
ip link set lo up
ip link add {BRIDGE} type bridge
ip addr add {GATEWAY} dev {BRIDGE}
ip link set {BRIDGE} up
echo up
exec cat
"""


class Network:
    """A context manager. pid: of the process that keeps the namespace."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def __enter__(self) -> Network:
        self.process = subprocess.Popen(
            ["unshare", "--net", "--", "sh", "-c", SET_UP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "up\n":
            raise RuntimeError(f"no bridge can be made here: {self.process.communicate()[1]}")
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.communicate()  # the end of its input is its end
            self.process = None

    def enter(self) -> list[str]:
        """What goes before a command that is to run in the namespace."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--"]


def why_not() -> str:
    """Why there can be no such network on this machine; "" when there can."""
    try:
        with Network():
            return ""
    except (OSError, RuntimeError) as fault:
        return " ".join(str(fault).split())
