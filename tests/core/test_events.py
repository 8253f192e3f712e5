"""Each event has one handler."""

from __future__ import annotations

from typing import get_args

from leased.core.arbiter import OF_NODE
from leased.core.events import Event
from leased.core.tenant_changes import OF_TENANT
from leased.core.tenant_events import OfTenant


def test_each_event_is_handled_in_one_place() -> None:
    assert set(OF_TENANT) == set(get_args(OfTenant))
    assert {*OF_TENANT, *OF_NODE} == set(get_args(Event))
    assert not OF_TENANT.keys() & OF_NODE.keys()
