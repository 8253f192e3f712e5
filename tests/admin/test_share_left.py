"""A job that requests more of a GPU's time than is left: it is refused, or waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from leased.api.client import ask
from leased.base.errors import Refused
from leased.cli import show_jobs
from tests.conftest import Start
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, line, state

REGISTER = {"op": "register", "uid": 0, "nodes": 1, "shards": 1, "gpus": [0]}
WORKS = SET_UP + "ok(spin(1000)); ok(d.cuCtxSynchronize()); say('worked')"


def register(leased: Leased, job: int, options: str) -> str:
    """The note that its user gets."""
    request = REGISTER | {"job_id": job, "options": options}
    return str(ask(leased.admin_socket, request).get("note", ""))


def end(leased: Leased, job: int) -> None:
    ask(leased.admin_socket, {"op": "job_end", "job_id": job})


def status(leased: Leased) -> Any:
    return ask(leased.admin_socket, {"op": "status"})


def lacking(leased: Leased) -> list[int]:
    """The jobs that wait for their share."""
    return [t["job_id"] for t in status(leased)["tenants"] if t["share"] and t["share"]["lacking"]]


def let_wait(leased: Leased, most: int = 16) -> None:
    text = leased.config.read_text()
    text += f'[limits]\nrequest_full = "wait"\nrequest_waiting = {most}\n'
    leased.config.write_text(text)
    ask(leased.admin_socket, {"op": "reload"})


def test_it_is_refused_where_the_site_says_nothing(leased: Leased) -> None:
    assert register(leased, 1, "request:0.7") == ""
    with pytest.raises(Refused, match=r"request:0\.4 is more than is left .* so 0\.3 is left"):
        register(leased, 2, "request:0.4")
    assert register(leased, 3, "request:0.3") == ""
    assert register(leased, 4, "limit:0.5") == ""
    assert status(leased)["devices"][0]["requested"] == 1


def test_it_waits_where_the_site_wants_that(leased: Leased) -> None:
    let_wait(leased)
    register(leased, 1, "request:0.7")
    note = register(leased, 2, "request:0.6")
    assert note.startswith("request:0.6 is more than is left of its GPU, of which other jobs ")
    assert note.endswith("so 0.3 is left; this job waits until enough of them have ended")
    assert "comes behind other jobs" in register(leased, 3, "request:0.2"), "though it would fit"
    assert register(leased, 4, "limit:0.5") == "", "it requests nothing"
    assert lacking(leased) == [2, 3]
    assert any(
        said.startswith("job 2 waits for its share: ") for said in show_jobs.shares(status(leased))
    )
    end(leased, 1)
    assert lacking(leased) == []
    assert status(leased)["devices"][0]["requested"] == 0.8


def test_no_more_wait_than_may(leased: Leased) -> None:
    let_wait(leased, most=1)
    register(leased, 1, "request:1")
    register(leased, 2, "request:0.5")
    with pytest.raises(Refused, match=r"and 1 jobs wait for such time already, as many as may"):
        register(leased, 3, "request:0.5")
    end(leased, 2)
    assert register(leased, 3, "request:0.5")
    assert lacking(leased) == [3]


def test_it_works_when_it_goes_on(tenant: Start, leased: Leased) -> None:
    let_wait(leased)
    register(leased, 2, "request:0.5")
    job = tenant(1, "request:0.6", "-c", WORKS)
    wait_until("it to wait", lambda: 1 in lacking(leased) and state(leased, 1) == "waits")
    end(leased, 2)
    assert line(job) == "worked"


@pytest.mark.parametrize("killed", [False, True])
def test_a_job_that_waits_for_its_share_still_waits_after_a_restart(
    leased: Leased, killed: bool
) -> None:
    """Their numbers are in another order than they came in."""
    let_wait(leased)
    for job, request in ((5, 0.7), (4, 0.6), (6, 0.1), (3, 0.4)):
        register(leased, job, f"request:{request}")
    assert lacking(leased) == [3, 4, 6]
    leased.kill() if killed else leased.stop()
    leased.start()
    assert lacking(leased) == [3, 4, 6]
    end(leased, 5)
    assert lacking(leased) == [3], "who came first is first"
    end(leased, 4)
    assert lacking(leased) == []
