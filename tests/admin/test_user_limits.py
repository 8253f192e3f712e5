"""What users may choose on a site."""

from __future__ import annotations

import pytest

from leased.admin.user_limits import UserLimits
from leased.base.errors import Refused
from leased.config.config import Config
from leased.config.options import Options, Resolved, parse


def check(said: str, **limits: float) -> None:
    UserLimits.of(Config(**limits)).check(Resolved.of(parse(said), Options()))  # type: ignore[arg-type]


def test_a_job_requests_as_much_as_the_site_lets_one_request() -> None:
    check("request:1")
    check("request:0.5", request_max=0.5)
    with pytest.raises(Refused, match=r"request:0\.6 is more than a job may request") as said:
        check("request:0.6", request_max=0.5)
    assert said.value.hint == "request 0.5 or less"
    check("limit:0.6", request_max=0.0)


def test_a_quantum_is_30_ms_or_more_where_the_site_says_nothing() -> None:
    check("request:0.5,tq:30ms")
    with pytest.raises(Refused, match=r"tq:0\.029s is outside") as said:
        check("request:0.5,tq:29ms")
    assert said.value.hint == "choose tq between 0.03s and 600s"
