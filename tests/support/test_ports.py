"""Ports that tests are given."""

from __future__ import annotations

import socket

import pytest

from tests.support import ports


def test_no_port_is_given_twice() -> None:
    """None of them is taken yet."""
    given = [ports.free_port() for _ in range(300)]
    assert len(set(given)) == len(given)


def test_workers_of_a_run_are_given_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_drawn", set[int]())
    given = []
    for worker in range(5):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{worker}")
        given.append({ports.free_port() for _ in range(300)})
    assert len(set().union(*given)) == sum(map(len, given))


def test_a_port_that_is_in_use_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn again and again, until one is free."""
    taken = ports.free_port()
    monkeypatch.setattr(ports, "_drawn", set[int]())
    draws = iter([taken, taken + ports.WORKERS_MOST])
    monkeypatch.setattr("random.choice", lambda _: next(draws))
    with socket.socket() as user:
        user.bind(("127.0.0.1", taken))
        assert ports.free_port() == taken + ports.WORKERS_MOST
