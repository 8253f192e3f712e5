"""What the plainest event costs, counted in calls, which no load of the machine changes."""

from __future__ import annotations

import pytest

from leased import policy
from leased.core.actions import Grant
from leased.core.arbiter import Arbiter
from leased.core.events import Closed, Opened, PolicySet, Released, Requested
from tests.bench.core import MOST_CALLS, MOST_FILES, cost_of_a_grant

S = 1_000_000_000


def test_the_plainest_grant_is_a_few_calls_in_a_few_files() -> None:
    """One GPU, and one job that asks for it."""
    calls, files = cost_of_a_grant()
    assert calls <= MOST_CALLS
    assert len(files) <= MOST_FILES, files


@pytest.mark.parametrize("name", policy.names())
def test_a_job_that_is_over_costs_nothing_more(name: str) -> None:
    """Nothing is kept of it, however many there were."""
    a = Arbiter({"d0": 100}, policy.make)
    a.handle(PolicySet("d0", name), 0)
    for tenant in range(50):
        a.handle(Opened(tenant, ("d0",), "on", S), tenant * S)
        (grant,) = a.handle(Requested(tenant), tenant * S)
        assert isinstance(grant, Grant)
        a.handle(Released(tenant, grant.epoch), tenant * S)
        a.handle(Closed(tenant), tenant * S)
    assert not a.rules.charges.accounts
    assert a.next_deadline() is None
