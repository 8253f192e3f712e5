"""What processes say of their channel groups: kept, bounded, and shown to administrators."""

from __future__ import annotations

import os
from typing import Any, cast

import pytest
from _gpulease import ffi, lib

from leased.admin import details
from leased.api.answers import Channels, Slices
from leased.cli import show_jobs
from leased.slices import controller
from leased.wire import header
from tests.cli.fake_status import status
from tests.connections.test_limits import HELLO, REQUEST, UUID, Door, refusal
from tests.support.together import zip_strict

NONE, CONTROLLED, REFUSED = range(3)


def channels(state: int, reason: bytes = b"", given_up: int = 0) -> bytes:
    message: Any = header.new(lib.GL_CHANNELS)
    message.state, message.given_up = state, given_up
    ffi.buffer(message.reason)[: len(reason)] = reason
    return bytes(ffi.buffer(message))


def of_job(*said: tuple[int, bytes] | tuple[int, bytes, int] | None) -> Channels:
    """What is known of a job with a process for each of these; None: it says nothing."""
    door = Door()
    for one in said:
        sock = door.connect()
        door.say(sock, HELLO)
        if one is not None:
            door.say(sock, channels(*one))
        assert sock.open
    return details.channels(door.leases, door.tenant)


MPS = (REFUSED, b"MPS has the channels")


@pytest.mark.parametrize(
    ("said", "state", "why", "processes"),
    [
        ((), "none", None, 0),
        ((None, (NONE, b"")), "none", None, 0),
        (((CONTROLLED, b""), (NONE, b""), None), "controlled", None, 1),
        (((CONTROLLED, b""), MPS), "refused", "MPS has the channels", 1),
        ((MPS, (REFUSED, b"a sandbox"), MPS), "refused", "MPS has the channels", 3),
    ],
)
def test_a_job_is_controlled_if_all_its_groups_are(
    said: tuple[tuple[int, bytes] | None, ...], state: str, why: str | None, processes: int
) -> None:
    found = of_job(*said)
    assert (found["state"], found["why"], found["processes"]) == (state, why, processes)
    assert (found["given_up"], found["why_given_up"]) == (0, None)


def process(*said: bytes) -> tuple[Door, Any]:
    """A process that has said this after its HELLO, and its connection."""
    door = Door()
    sock = door.connect()
    for message in (HELLO, *said):
        door.say(sock, message)
    return door, sock


@pytest.mark.parametrize(
    "said", [(channels(CONTROLLED), channels(*MPS), channels(NONE)), (channels(*MPS), b"")]
)
def test_the_last_word_of_a_process_counts_while_it_is_there(said: tuple[bytes, ...]) -> None:
    door, _ = process(*said)
    assert details.channels(door.leases, door.tenant)["state"] == "none"


def test_a_state_that_cannot_be_is_refused() -> None:
    _, sock = process(channels(3))
    assert refusal(sock) == "channel groups in state 3"


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (b"x" * 240, "x" * 240),
        (b"\x1b[2Jred\nline\x00rest", "?[2Jred?line"),
        (b"caf\xc3\xa9 \xff \xe2\x80\xae", "caf\u00e9 \ufffd ?"),
    ],
)
def test_a_reason_is_harmless_to_a_terminal(reason: bytes, shown: str) -> None:
    assert of_job((REFUSED, reason))["why"] == shown


def test_jobs_whose_slices_cannot_be_set_are_named() -> None:
    answer = status(jobs=3)
    answer["tenants"][1]["channels"] = of_job(MPS)
    answer["tenants"][2]["channels"] = of_job((CONTROLLED, b""))
    assert (
        show_jobs.uncontrolled(answer)
        == show_jobs.time_slices(answer)
        == ["job 101: its time slices are the driver's (1 of 1 process): MPS has the channels"]
    )


def test_stops_that_were_given_up_are_counted_and_shown() -> None:
    answer = status(jobs=2)
    late = (CONTROLLED, b"its copies did not end", 1), (CONTROLLED, b"a thread was in a call", 3)
    answer["tenants"][1]["channels"] = said = of_job(*late, (CONTROLLED, b""))
    assert (said["state"], said["why"], said["given_up"]) == ("controlled", None, 4)
    [line] = show_jobs.time_slices(answer)
    assert line.startswith("job 101: 4 times its work could not be stopped in mid-kernel")
    assert line.endswith("waited for: a thread was in a call")


def test_what_was_chosen_is_said_with_its_reason() -> None:
    answer = status(jobs=5)
    made: Slices = {"slice_s": None, "duty": 1.0, "why": "it is alone on the GPU"}
    others: list[dict[str, float]] = [{"slice_s": 5e-5}, {"slice_s": 0.02, "duty": 0.25}]
    answer["tenants"][4]["job"] = "99_4"
    chosen = [{}, *others, {"duty": 0.3}, others[0]]
    for tenant, other in zip_strict(answer["tenants"], chosen):
        tenant["slices"] = {"GPU-1": cast("Slices", made | other)}
    why = "of GPU 1: it is alone on the GPU"
    assert show_jobs.time_slices(answer) == [
        f"jobs 101, 99_4 have time slices of 50 us {why}",
        f"job 102 has time slices of 20.0 ms in 25.0% of the time {why}",
        f"job 103 has the driver's time slices in 30.0% of the time {why}",
    ]


def test_a_job_is_told_what_it_has_on_each_device() -> None:
    door, sock = process()
    said = details.slices(door.leases, door.tenant)
    assert said == {UUID: {"slice_s": None, "duty": 1.0, "why": "it holds no lease"}}
    door.say(sock, REQUEST)
    for _ in range(2):
        door.leases.slices.measured(UUID, 100, {os.getpid(): 100})
    said = details.slices(door.leases, door.tenant)
    assert said == {UUID: {"slice_s": None, "duty": 1.0, "why": controller.ALONE}}
