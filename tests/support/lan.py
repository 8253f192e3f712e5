"""A network of emulated nodes: each has a network namespace and a monotonic clock of its own.

All are joined by a bridge in one more namespace. The namespaces live as long as a process in each
of them, and those end with this one, so nothing of them is left on the machine. Needs root.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from types import TracebackType

from tests.support.children import children_of

NET = "10.77.0"  # inside of these namespaces alone
DELAY = "0.1ms"  # of each node's link: 0.2 ms between two nodes
HOLDER = ("sh", "-c", "echo there; exec cat")  # until its input ends


def _do(*command: str) -> None:
    """OSError: it cannot be done here, and why."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


class Lan:
    """clocks: by node, how many seconds its monotonic clock is ahead of this machine's. delay: that
    of a message between two nodes; "none": the kernel has no netem."""

    def __init__(self, clocks: Mapping[str, int]):
        self.clocks = dict(clocks)
        self.names = list(clocks)
        self.holders: dict[str, subprocess.Popen[str]] = {}
        self.within: dict[str, int] = {}  # by node, a process in its namespaces
        self.delay = DELAY

    def address(self, name: str) -> str:
        return f"{NET}.{self.names.index(name) + 1}"

    def enter(self, name: str) -> list[str]:
        """What a command begins with that is to run on that node."""
        return ["nsenter", f"--target={self.within[name]}", "--net", "--time", "--"]

    def __enter__(self) -> Lan:
        """OSError: such namespaces cannot be made here."""
        try:
            self._hold("", "--net", "--fork")
            self._in_switch("ip", "link", "add", "lan", "type", "bridge", "forward_delay", "0")
            self._in_switch("ip", "link", "set", "lan", "up")
            for name, ahead in self.clocks.items():
                self._hold(name, "--net", "--time", f"--monotonic={ahead}", "--fork")
                self._join(name)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for holder in self.holders.values():
            holder.communicate()

    def _hold(self, name: str, *namespaces: str) -> None:
        command, pipe = ["unshare", *namespaces, *HOLDER], subprocess.PIPE
        holder = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.holders[name] = holder
        assert holder.stdout is not None
        if not holder.stdout.readline():
            raise OSError(f"unshare {' '.join(namespaces)} does not work here")
        [self.within[name]] = children_of(holder.pid)

    def _in_switch(self, *command: str) -> None:
        _do("nsenter", f"--target={self.within['']}", "--net", "--", *command)

    def _in(self, name: str, *command: str) -> None:
        _do(*self.enter(name), *command)

    def _join(self, name: str) -> None:
        port, node = self._port(name), str(self.within[name])
        self._in_switch(
            *("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", node)
        )
        self._in_switch("ip", "link", "set", port, "master", "lan", "up")
        self._in(name, "ip", "link", "set", "lo", "up")
        self._in(name, "ip", "address", "add", f"{self.address(name)}/24", "dev", "eth0")
        self._in(name, "ip", "link", "set", "eth0", "up")
        if self.delay != "none":
            try:
                self._in(name, "tc", "qdisc", "add", "dev", "eth0", "root", "netem", "delay", DELAY)
            except OSError:
                self.delay = "none"

    def _port(self, name: str) -> str:
        return f"port{self.names.index(name)}"

    # -- what fails ------------------------------------------------------------------------

    @contextlib.contextmanager
    def cut(self, name: str) -> Iterator[None]:
        """Nothing comes to this node or from it."""
        self._in_switch("ip", "link", "set", self._port(name), "down")
        yield
        self._in_switch("ip", "link", "set", self._port(name), "up")

    @contextlib.contextmanager
    def parted(self, one: str, other: str) -> Iterator[None]:
        """These two do not hear each other any more."""
        self._in(one, "ip", "route", "add", "blackhole", self.address(other))
        yield
        self._in(one, "ip", "route", "del", "blackhole", self.address(other))
