"""Each event has one handler."""

from __future__ import annotations

from leased.core.arbiter import OF_NODE
from leased.core.events import OfDevice, OfTenant
from leased.core.tenant_changes import OF_TENANT
from leased.record.codec import EVENTS


def test_each_event_is_handled_in_one_place() -> None:
    events = EVENTS.values()
    assert set(OF_TENANT) == {cls for cls in events if issubclass(cls, OfTenant)}
    assert set(OF_NODE) == {cls for cls in events if not issubclass(cls, (OfTenant, OfDevice))}
