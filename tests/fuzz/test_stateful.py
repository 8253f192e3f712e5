"""Clients of several jobs and the site's settings, step by step as hypothesis chooses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from leased.core.events import LockSet, QuantumSet
from tests.fuzz.node import JOBS, STRANGER, UIDS, UUIDS, Node, Peers, quiet
from tests.fuzz.reader import Reader
from tests.fuzz.targets import answer, built, damaged

jobs = st.integers(1, JOBS)


class Anything(RuleBasedStateMachine):
    """Any bytes, any order, many clients: no fault, no growth, no wrong grant."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Node()

    def peer(self, n: int) -> Peers:
        return self.node.peers[n % len(self.node.peers)]

    def some(self) -> bool:
        return bool(self.node.peers)

    @rule(job=jobs, gang=st.integers(0, 4), lock=st.integers(0, 7), usage=st.booleans())
    def open_job(self, job: int, gang: int, lock: int, usage: bool) -> None:
        self.node.open(job, gang, lock, 10**9, usage)

    @rule(job=jobs)
    def close_job(self, job: int) -> None:
        self.node.close_job(job)

    @rule(
        job=st.one_of(jobs, st.just(STRANGER)),
        root=st.booleans(),
        other=st.integers(0, UIDS - 1),
        says=st.booleans(),
    )
    def connect(self, job: int, root: bool, other: int, says: bool) -> None:
        peer = self.node.connect(job, root, other)
        if peer and says:
            self.node.send(peer, answer(peer))

    @precondition(some)
    @rule(n=st.integers(0, 30), times=st.integers(1, 3))
    def behave(self, n: int, times: int) -> None:
        peer = self.peer(n)
        for _ in range(times):
            self.node.send(peer, answer(peer))

    @precondition(some)
    @rule(n=st.integers(0, 30), data=st.binary(max_size=40))
    def say(self, n: int, data: bytes) -> None:
        peer = self.peer(n)
        self.node.send(peer, built(Reader(data), self.node, peer))

    @precondition(some)
    @rule(n=st.integers(0, 30), data=st.binary(max_size=80))
    def babble(self, n: int, data: bytes) -> None:
        peer = self.peer(n)
        self.node.send(peer, damaged(Reader(data), self.node, peer))

    @precondition(some)
    @rule(n=st.integers(0, 30))
    def leave(self, n: int) -> None:
        self.node.send(self.peer(n), b"")

    @precondition(some)
    @rule(n=st.integers(0, 30))
    def listen_or_not(self, n: int) -> None:
        peer = self.peer(n)
        peer.deaf, peer.sock.full = not peer.deaf, 4

    @rule()
    def restart(self) -> None:
        self.node.restart()

    @rule(seconds=st.sampled_from([0.0, 1e-3, 0.1, 1.0, 11.0, 100.0]))
    def wait(self, seconds: float) -> None:
        self.node.pass_time(seconds)

    @rule(
        uuid=st.sampled_from(UUIDS),
        lock=st.sampled_from([None, "on", "off", "auto"]),
        quantum=st.sampled_from([None, 1, 10**9]),
    )
    def set(self, uuid: str, lock: str | None, quantum: int | None) -> None:
        self.node.leases.run(LockSet(uuid, lock), QuantumSet(uuid, quantum))

    @invariant()
    def rules_hold(self) -> None:
        self.node.check()

    def teardown(self) -> None:
        self.node.end()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


TestAnything = Anything.TestCase
TestAnything.settings = settings(
    max_examples=80,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_a_connection_that_was_dropped_is_not_kept_over_a_restart() -> None:
    """It is only closed when the daemon comes to it, here when the next one connects."""
    state = Anything()
    state.connect(job=1, other=0, root=False, says=False)
    state.listen_or_not(n=0)
    while state.node.peers[0].sock.open:
        state.restart()
        state.connect(job=1, other=0, root=False, says=False)
    state.restart()
    state.teardown()
