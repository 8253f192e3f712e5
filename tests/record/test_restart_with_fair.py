"""A daemon that ends with jobs under way leaves its successor what fair remembers of them."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.node.test_restart import WORK, wait_for_handoffs
from tests.record.test_daemon_record import checked, lines
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import line, output, tell

pytestmark = [
    pytest.mark.long,  # each test starts a daemon
    pytest.mark.parametrize("leased", ['[device]\npolicy = "fair"\n'], indirect=True),
]


def begun(tenant: Start, *numbers: int) -> list[subprocess.Popen[str]]:
    jobs = [tenant(n, "tq:100ms,lock:on", "-c", WORK) for n in numbers]
    for job in jobs:
        line(job)
    return jobs


def end(jobs: list[subprocess.Popen[str]]) -> None:
    for job in jobs:
        tell(job)
    for job in jobs:
        output(job)


def stored(leased: Leased) -> dict[int, str]:
    """What the store has of each job."""
    with sqlite3.connect(leased.prefix / "state" / "usage.db") as db:
        return dict(db.execute("SELECT job_id, state FROM remembered WHERE policy = 'fair'"))


def restored(path: Path) -> dict[int, str]:
    events = [entry["event"] for entry in lines(path) if "event" in entry]
    return {e["tenant"]: e["state"] for e in events if e["type"] == "PolicyRestored"}


@pytest.mark.parametrize("killed", [True, False])
def test_deficits_go_on_in_the_next_daemon(
    leased: Leased, tenant: Start, path: Path, killed: bool
) -> None:
    jobs = begun(tenant, 1, 2)
    wait_for_handoffs(leased, 4)
    wait_until("both to be in the store", lambda: stored(leased).keys() == {1, 2})
    leased.kill() if killed else leased.stop()
    before = stored(leased)
    assert all(json.loads(state)[str(job)] for job, state in before.items())
    leased.start()
    wait_until("the new daemon's record", lambda: restored(path) == before)
    wait_for_handoffs(leased, 2)
    end(jobs)
    leased.stop()
    checked(path)


def test_damaged_deficits_stop_no_daemon(leased: Leased, tenant: Start, path: Path) -> None:
    jobs = begun(tenant, 1, 2, 3)
    wait_until("all to be in the store", lambda: stored(leased).keys() == {1, 2, 3})
    leased.kill()
    good = stored(leased)[3]
    with sqlite3.connect(leased.prefix / "state" / "usage.db") as db:
        db.execute("UPDATE remembered SET state = '{' WHERE job_id < 3")
    db.close()
    leased.start()
    wait_until("the good one", lambda: restored(path) == {3: good})
    warnings = [
        said for said in leased.log.read_text().splitlines() if "the policies had stored" in said
    ]
    assert len(warnings) == 1, warnings
    assert "what the policies had stored of 2 jobs (1, 2) cannot be used" in warnings[0]
    end(jobs)
