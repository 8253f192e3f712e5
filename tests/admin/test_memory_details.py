"""What status says of memory: why it stays, and whether clean memory is known, in JSON and text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from _gpulease import lib

from leased.admin import details
from leased.api.answers import Status
from leased.cli import show_gpus
from leased.leasing.tenant import Tenant
from leased.wire import client_messages
from tests.support.fake_client import FakeClient
from tests.support.given import given

UUID = "GPU-0"
MIB = 1 << 20


def tenant(*clean: int, swaps: bool = True, fixed: Mapping[str, int] | None = None) -> Tenant:
    """A process for each of these; what stays is the first one's and as much the last one's."""
    made = Tenant(7, 1000, given("auto", 1, swaps=swaps), {UUID: 1 << 30, "GPU-1": 1 << 30})
    sizes = dict.fromkeys(client_messages.FIXED, 0) | dict(fixed or {})
    for pid, code in enumerate(clean):
        client = FakeClient(pid)
        client.details[UUID] = client_messages.Details(UUID, 0, code, sizes)
        made.clients.append(client)
    return made


@pytest.mark.parametrize("why", client_messages.FIXED)
def test_each_reason_is_said_with_its_bytes(why: str) -> None:
    found = details.fixed(tenant(1, 1, fixed={why: 4 * MIB}))
    assert found == {UUID: {why: 8 * MIB}}
    (line,) = show_gpus.fixed(answer(fixed=found))
    assert line == f"job 7: of GPU 3 8.0 MiB {show_gpus.FIXED[why]} cannot leave"


@pytest.mark.parametrize("code", details.CLEAN)
def test_each_state_of_clean_memory_has_words(code: int) -> None:
    state, why = details.CLEAN[code]
    found = details.clean(tenant(lib.GL_CLEAN_ON, code), True, 0)
    if code in (lib.GL_CLEAN_UNKNOWN, lib.GL_CLEAN_ON):
        state, why = "on", ""
    assert found == {"state": state, "why": why or None, "left_bytes": 0}
    lines = show_gpus.clean(answer(clean=found))
    assert lines == ([f"job 7: clean memory is copied all the same: {why}"] if why else [])


def test_the_sites_word_counts_before_a_process_has_said_anything() -> None:
    assert details.clean(tenant(), False, 0) == {
        "state": "off",
        "why": "the site has set limits.swap_clean = false",
        "left_bytes": 0,
    }
    found = details.clean(tenant(), True, 0)
    assert found is not None
    assert found["state"] == "unknown"


def test_a_state_of_a_later_release_is_no_fault() -> None:
    found = details.clean(tenant(4711), True, 0)
    assert found is not None
    assert found["state"] == "off"
    assert found["why"]


def test_managed_memory_is_never_clean() -> None:
    assert details.clean(tenant(0, swaps=False), True, 0) is None
    assert show_gpus.clean(answer(clean=None)) == []


def test_memory_evicted_without_a_copy_is_shown() -> None:
    found = details.clean(tenant(lib.GL_CLEAN_ON), True, 5 * MIB)
    assert show_gpus.clean(answer(clean=found)) == [
        "job 7: 5.0 MiB were evicted without being copied again"
    ]


def test_the_kind_is_said_with_its_reason_and_jobs_that_have_the_same_together() -> None:
    status = answer(memory="swap", memory_why="there is host memory")
    status["tenants"].append(
        cast("Any", {"job": "8_1", "memory": "managed", "memory_why": "asked"})
    )
    status["tenants"].append(cast("Any", status["tenants"][0] | {"job": "9"}))
    status["tenants"].append(cast("Any", {"job": "10", "memory": "swap", "memory_why": None}))
    assert show_gpus.kinds(status) == [
        "jobs 7, 9 have swapped memory: there is host memory",
        "job 8_1 has managed memory: asked",
    ]


def answer(**fields: Any) -> Status:
    """Of one job, as far as these lines read it."""
    devices = [{"uuid": UUID, "index": 3}]
    return cast("Status", {"devices": devices, "tenants": [{"job": "7"} | fields]})
