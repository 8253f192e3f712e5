"""The daemon ends and comes back under systemd, while one job holds the GPU and another waits."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.emugpu.programs import finish, line
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, tell
from tests.support.together import zip_strict
from tests.systemd.node import SERVICE, UNITS, Node

HOLDER, WAITER = 9001, 9002
HOLD = (
    SET_UP
    + """
told, tell = os.pipe()
wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: os.read(told, 1))
# The stream waits for a word of ours, so the holder is not idle until it is told.
ok(d.cuLaunchHostFunc(0, ctypes.cast(wait, ctypes.c_void_p).value, 0))
say(os.getpid()); sys.stdin.readline()
os.write(tell, b"x")
ok(d.cuCtxSynchronize())
say("went on")
"""
)
WAIT = SET_UP + "say(os.getpid()); ok(spin(1000)); ok(d.cuCtxSynchronize()); say('ran')"


class Jobs:
    """One that holds and one that waits, and what they were before the daemon's end."""

    def __init__(self, node: Node):
        self.node = node
        self.holder, holder = self._start(HOLDER, HOLD)
        wait_until("job 9001 to hold", lambda: node.states(HOLDER) == ["holds"])
        self.waiter, waiter = self._start(WAITER, WAIT)
        wait_until("job 9002 to wait", self._as_before)
        self.pids = (holder, waiter)
        self.sockets = self._sockets()
        self.epoch = node.tenant(HOLDER)["epoch"]
        self.daemon = node.main_pid

    def _start(self, number: int, code: str) -> tuple[subprocess.Popen[str], int]:
        job = self.node.job(number, "tq:10m,lock:on", code)
        return job, int(line(job))

    def _as_before(self) -> bool:
        return self.node.states(HOLDER, WAITER) == ["holds", "waits"]

    def _sockets(self) -> list[set[str]]:
        return [self.node.sockets_of(pid) for pid in self.pids]

    def are_kept(self) -> None:
        wait_until("systemd to keep both connections", lambda: kept(self.node) == 2)

    def go_on(self, connected: bool = True) -> None:
        """Another daemon has come, both are what they were, and both come to their end.

        connected: their connections are those of before, which systemd has kept. They may have
        further sockets by now.
        """
        wait_until("another daemon", self.node.replaced(self.daemon), timeout=60)
        wait_until("both to be what they were", self._as_before)
        assert self.node.tenant(HOLDER)["epoch"] == self.epoch
        same = [before <= now for before, now in zip_strict(self.sockets, self._sockets())]
        assert same == [connected, connected]
        tell(self.holder)
        assert finish(self.holder) == "went on\n"
        assert finish(self.waiter) == "ran\n"
        wait_until("systemd to keep none", lambda: kept(self.node) == 0)


def kept(node: Node) -> int:
    """How many connections systemd has in its store."""
    return int(node.show(SERVICE, "NFileDescriptorStore"))


def restart(node: Node) -> None:
    node.systemctl("restart", SERVICE)


def restart_all(node: Node) -> None:
    node.systemctl("restart", *UNITS)


def kill(node: Node) -> None:
    node.systemctl("kill", "--signal=KILL", "--kill-who=main", SERVICE)


def hang(node: Node) -> None:
    """It stands still until systemd's watchdog has enough of it."""
    node.systemctl("kill", "--signal=STOP", "--kill-who=main", SERVICE)


@pytest.mark.parametrize("end", [restart, restart_all, kill, hang])
def test_jobs_go_on_under_the_next_daemon(node: Node, end: Callable[[Node], None]) -> None:
    if end is hang:
        node.drop_in("[Service]\nWatchdogSec=5s\nTimeoutAbortSec=1s\n")
    jobs = Jobs(node)
    jobs.are_kept()
    end(node)
    jobs.go_on()
    said = "Watchdog timeout" if end is hang else "kept of the previous daemon: 2 connections"
    wait_until(said, lambda: said in node.journal())


def test_jobs_go_on_where_systemd_keeps_no_connections(node: Node) -> None:
    node.drop_in("[Service]\nFileDescriptorStoreMax=0\nEnvironment=FDSTORE=0\n")
    jobs = Jobs(node)
    kill(node)
    jobs.go_on(connected=False)


def test_jobs_go_on_over_an_upgrade(node: Node) -> None:
    jobs = Jobs(node)
    jobs.are_kept()
    node.install("9.9.9")
    node.systemctl("daemon-reload")
    node.systemctl("restart", SERVICE)
    jobs.go_on()
    assert node.status()["version"] == "9.9.9"


def test_a_daemon_that_the_watchdog_aborts_says_where_it_was(node: Node) -> None:
    before = node.main_pid
    node.systemctl("kill", "--signal=ABRT", "--kill-who=main", SERVICE)
    wait_until("another daemon", node.replaced(before))
    wait_until("its last words", lambda: "Fatal Python error: Aborted" in node.journal())
    wait_until("where it was", lambda: "/leased/node/daemon.py" in node.journal())
