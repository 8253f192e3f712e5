"""The plugin's Python half: daemons that go away while it asks, and who says what a job has."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cffi
import pytest

from leased.api.step_fields import JOIN_FIELDS, NODES_MOST, REGISTER_FIELDS, STEP_FIELDS, Step
from spank import build_half
from spank.allocation import Allocation, NoAnswer
from spank.register import register
from tests.conftest import ROOT

STEP = Step(job_id=7, uid=5, memory_mib=100, options="tq:5", cluster="c")
JOIN = {"op": "join", **STEP}
OK = {"ok": True, "preload": "/lib.so", "env": {"GPU_LEASE_SOCKET": "/run/x"}}
UNKNOWN = {"ok": False, "error": "job 7 is not registered"}
HERE = ("gpu7",), "gpu7"
SHARES = Allocation(
    *HERE, shards=2, gpus=(0, 2), whole=0, job="5_3", start=99, qos="q", shards_of=(1, 1)
)
WHOLE = Allocation(*HERE, shards=0, gpus=(), whole=2)
NOTHING = Allocation(*HERE, shards=0, gpus=(), whole=0)
GRANTED = "ok\npreload=/lib.so\nGPU_LEASE_SOCKET=/run/x\n"


@pytest.fixture
def path(short_dir: Path) -> Path:
    """Of the daemon's socket."""
    return short_dir / "admin.sock"


@contextmanager
def daemon(path: Path, answers: list[dict[str, Any] | list[Any] | None]) -> Iterator[list[Any]]:
    """Answers one connection after the other; None: ends it without one. What it was asked."""
    asked: list[Any] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen()
        listening.settimeout(20)

        def serve() -> None:
            for answer in answers:
                connection, _ = listening.accept()
                with connection:
                    if answer is not None:
                        asked.append(json.loads(connection.recv(65536)))
                        connection.send(json.dumps(answer).encode())

        thread = threading.Thread(target=serve)
        thread.start()
        yield asked
        thread.join()


def says(has: Allocation) -> Callable[[int], Allocation]:
    """A slurmctld that says this of job 7."""

    def allocation_of(job_id: int) -> Allocation:
        assert job_id == 7
        return has

    return allocation_of


def silent(_: int) -> Allocation:
    raise NoAnswer("it does not answer")


def unasked(_: int) -> Allocation:
    pytest.fail("slurmctld was asked")


def test_a_known_job_needs_no_slurmctld(path: Path) -> None:
    with daemon(path, [OK]) as asked:
        assert register(str(path), STEP, True, False, unasked) == GRANTED
    assert asked == [JOIN]


def test_a_known_job_that_the_daemon_has_lost_is_registered_again(path: Path) -> None:
    with daemon(path, [UNKNOWN, OK]) as asked:
        assert register(str(path), STEP, True, True, says(SHARES)) == GRANTED
    assert [request["op"] for request in asked] == ["join", "register"]


def test_the_gpus_are_those_that_slurmctld_names(path: Path) -> None:
    with daemon(path, [OK]) as asked:
        assert register(str(path), STEP, False, True, says(SHARES)) == GRANTED
    owner = {"partition": "", "qos": "q", "account": "", "restarts": 0}
    found = {
        "job": "5_3",
        "start": 99,
        **owner,
        "nodes": 1,
        "node_names": [],
        "shards": 2,
        "gpus": [0, 2],
        "shards_of": [1, 1],
    }
    assert asked == [{"op": "register", **STEP, **found}]


@pytest.mark.parametrize("nodes", [2, NODES_MOST, NODES_MOST + 1])
def test_the_nodes_of_a_job_are_named(path: Path, nodes: int) -> None:
    """Not so many that the request has no room for them: there the daemon refuses their number."""
    names = tuple(f"gpu{n}" for n in range(nodes))
    with daemon(path, [OK]) as asked:
        has = SHARES._replace(nodes=names, node="gpu1")
        assert register(str(path), STEP, False, True, says(has)) == GRANTED
    named = list(names) if nodes <= NODES_MOST else []
    assert [(asked[0]["nodes"], asked[0]["node_names"])] == [(nodes, named)]


def test_a_daemon_that_ends_meanwhile_is_asked_again(path: Path) -> None:
    with daemon(path, [None, None, OK]) as asked:
        assert register(str(path), STEP, False, True, says(SHARES)) == GRANTED
    assert [request["op"] for request in asked] == ["register"]


def test_what_is_granted_later_is_asked_for_again(path: Path) -> None:
    later = {"ok": False, "error": "MPS is being started", "hint": "", "later": True}
    with daemon(path, [later, later, OK]) as asked:
        assert register(str(path), STEP, False, True, says(SHARES)) == GRANTED
    assert [request["op"] for request in asked] == ["register"] * 3


def test_a_daemon_that_does_not_listen_is_not_waited_for(path: Path) -> None:
    said = register(str(path), STEP, False, True, says(SHARES))
    assert said.startswith("refused\ngpu-leased is not running on this node; an administrator")


def test_an_answer_that_makes_no_sense_is_a_refusal(path: Path) -> None:
    with daemon(path, [[]]):
        said = register(str(path), STEP, False, True, says(SHARES))
    assert said.startswith("refused\ngpu-leased on this node does not answer")


@pytest.mark.parametrize("has", [WHOLE, NOTHING])
def test_a_job_without_shards_needs_no_daemon(path: Path, has: Allocation) -> None:
    assert register(str(path), STEP, False, False, says(has)) == "none"


def test_an_option_without_a_shard_is_refused(path: Path) -> None:
    said = register(str(path), STEP, False, True, says(NOTHING))
    assert said == "refused\n--gpu-share without a shard; add --gres=shard:1"
    said = register(str(path), STEP, False, True, says(WHOLE))
    assert "ask for --gres=shard:1 instead of them and without --exclusive" in said


def test_a_component_of_another_kind_goes_on(path: Path) -> None:
    has = NOTHING._replace(component=True)
    assert register(str(path), STEP, False, True, says(has)) == "none"


@pytest.mark.parametrize("note", ["", "its GPU is slow"])
def test_a_step_that_has_waited_for_slurmctld_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def late(_: int) -> Allocation:
        now[0] += 45.2
        return SHARES

    with daemon(path, [{**OK, "note": note}]):
        said = register(str(path), STEP, False, True, late)
    told = "it begins 45 s later, since slurmctld did not say before which GPUs it has"
    assert f"note={told}{'; ' * bool(note)}{note}" in said.splitlines()


def test_slurmctld_that_does_not_say(path: Path) -> None:
    said = register(str(path), STEP, False, True, silent)
    assert said == (
        "refused\nslurmctld does not say which GPUs job 7 has (it does not answer); "
        "submit the job again when `scontrol ping` finds it"
    )


@pytest.mark.parametrize(("given", "told"), [(True, False), (False, True)])
def test_a_fault_of_the_environment_is_said_to_be_there(
    path: Path, given: bool, told: bool
) -> None:
    fault = {"ok": False, "error": "gpu-share: tq:x is not a time"}
    with daemon(path, [fault]):
        said = register(str(path), STEP, False, given, says(SHARES))
    assert said.startswith("refused\ngpu-share: tq:x is not a time")
    assert ("GPU_SHARE" in said) == told


def test_the_plugin_has_every_field_that_a_step_says() -> None:
    ffi = cffi.FFI()
    ffi.cdef("\n".join(build_half.MARKS.findall((ROOT / "spank" / "registration.h").read_text())))
    members = dict(ffi.typeof("struct registration").fields)
    assert set(STEP_FIELDS) <= members.keys()


def test_a_join_says_less_than_a_registration(path: Path) -> None:
    """Each is what the daemon takes: it refuses a field that it does not know."""
    refused = {"ok": False, "error": "no"}
    with daemon(path, [UNKNOWN, refused]) as asked:
        register(str(path), STEP, True, True, says(SHARES))
    assert [request.keys() for request in asked] == [
        {"op", *JOIN_FIELDS},
        {"op", *REGISTER_FIELDS},
    ]
