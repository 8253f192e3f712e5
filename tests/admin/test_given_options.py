"""What a job was given stays what it is: over reloads, restarts, and other releases."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict
from typing import Any

import pytest

from leased.api.client import ask
from leased.config import options
from leased.config.options import Options
from leased.leasing.registry import Registry
from leased.leasing.tenant import Tenant
from leased.usage.usage import Usage
from tests.slurm.leased import Leased
from tests.support.node_requests import DEFAULTS, UUIDS, Node
from tests.support.tenant import register


def given(tenant: Tenant) -> dict[str, Any]:
    names = ("job_id", "uid", "totals")
    return {name: getattr(tenant, name) for name in names} | asdict(tenant.given)


def test_other_defaults_do_not_change_a_job_that_runs(node: Node) -> None:
    node.default("tq:7,lock:on")
    before = given(node.register(1))
    asked = given(node.register(2, "tq:3,mem:0.25"))
    node.default("tq:9,lock:off,mem:0.5,oversub:on,memory:swap")
    for _ in range(2):
        node.restart()
        assert given(node.leases.tenants[1]) == before
        assert given(node.leases.tenants[2]) == asked
    assert (before["lock"], before["quantum_ns"]) == ("on", 7_000_000_000)
    assert given(node.register(3, "memory:managed"))["lock"] == "off"


def test_a_step_on_another_gpu_is_given_what_the_job_was(node: Node) -> None:
    before = node.register(1, "mem:0.5").totals[UUIDS[0]]
    node.default("mem:0.25")
    node.register(1, gpus=(1,))
    for _ in range(2):
        totals = node.leases.tenants[1].totals
        assert totals[UUIDS[0]] == before
        assert totals[UUIDS[1]] > before * 0.9, "half of it too"
        node.restart()
        assert node.leases.tenants[1].totals == totals


def test_a_jobs_total_does_not_depend_on_jobs_that_came_later(node: Node) -> None:
    before = [given(node.register(job))["totals"] for job in range(1, 9)]
    assert len({totals[UUIDS[0]] for totals in before}) > 1, "later ones see less"
    for job in range(1, 5):
        node.store.close_tenant(job, {})
    node.restart()
    assert [node.leases.tenants[job].totals for job in range(5, 9)] == before[4:]


def test_a_record_that_says_less_is_resolved_once(node: Node) -> None:
    node.register(1)
    node.rewrite("UPDATE tenants SET options = 'tq:3', lock = 'auto', totals = '{}'")
    node.restart()
    before = given(node.leases.tenants[1])
    assert before["quantum_ns"] == 3_000_000_000
    node.default("lock:off,mem:0.5")
    node.store.flush()
    node.restart()
    assert given(node.leases.tenants[1]) == before


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("tq:3s,lock:on,class:best,share:0.5", "class:best,share:0.5"),
        ("lock:sometimes,tq:3s", "lock:sometimes"),
        ("tq:3s,memory:far\x1b[0m", "memory:far"),
        ("no text of ours \ufffd", "no text of ours"),
    ],
)
def test_a_job_of_a_newer_release_goes_on_with_what_is_known(
    node: Node, caplog: pytest.LogCaptureFixture, text: str, unknown: str
) -> None:
    node.register(1)
    node.register(2, "tq:4,lock:on")
    node.rewrite("UPDATE tenants SET options = ? WHERE job_id = 1", text)
    node.restart()
    assert node.leases.tenants[1].given.quantum_ns == (
        3e9 if "tq:3s" in text else DEFAULTS.quantum_ns
    )
    assert given(node.leases.tenants[2])["quantum_ns"] == 4_000_000_000
    said = [
        r.getMessage() for r in caplog.records if "this release does not know" in r.getMessage()
    ]
    assert len(said) == 1
    assert unknown in said[0]
    assert said[0].isprintable()
    node.store.flush()
    # The newer release, once it is back, finds what it wrote.
    assert [r.options for r in node.store.open_tenants() if r.job_id == 1] == [text]


def test_a_record_that_cannot_be_used_ends_and_stops_nobody(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node.register(1)
    node.register(2)
    node.store.save({1: {UUIDS[0]: Usage(lease_ns=5)}}, 1)
    opens = Registry.open

    def fails_for_one(self: Registry, tenant: Tenant, *rest: Any) -> None:
        if tenant.job_id == 1:
            raise RuntimeError("not foreseen")
        opens(self, tenant, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Registry, "open", fails_for_one)
        node.restart()
    assert list(node.leases.tenants) == [2]
    assert [(r.job_id, r.usage[UUIDS[0]].lease_ns) for r in node.store.unsettled()] == [(1, 5)]
    assert "job 1 cannot be taken over" in caplog.text
    assert node.register(1).job_id == 1, "its next step begins anew"


def test_options_are_written_as_they_are_read() -> None:
    for text in ("tq:90s,lock:off", "tq:0.25", "mem:0.3,oversub:on", "mem:3GiB,memory:swap", ""):
        said = options.parse(text)
        assert options.parse(said.text()) == said
    most = Options(599_999_999_999, "auto", 1 / 3, None, oversub=False, memory="managed")
    assert options.parse(most.text()).quantum_ns == most.quantum_ns


def test_daemon_of_an_older_release_starts(leased: Leased) -> None:
    for job in (7, 8):
        register(leased.admin_socket, job, "tq:5,lock:on")
    leased.kill()
    with sqlite3.connect(leased.prefix / "state" / "usage.db") as db:
        db.execute("UPDATE tenants SET options = 'tq:5s,class:best' WHERE job_id = 7")
        db.execute("UPDATE tenants SET gang = ? WHERE job_id = 8", (json.dumps({"a": 1}),))
    db.close()
    leased.start()
    tenants = ask(leased.admin_socket, {"op": "status"})["tenants"]
    # What job 8 was registered with is also in a file of its own, and that one is sound.
    assert [(t["job_id"], t["quantum_s"]) for t in tenants] == [(7, 5.0), (8, 5.0)]
    log = leased.log.read_text()
    assert log.count("job 7 has the options 'class:best'") == 1
    assert (
        log.count("a row of the table tenants cannot be used and is set aside: gang is not a list")
        == 1
    )
    leased.kill()
    leased.start()
    assert leased.log.read_text().count("is set aside") == 1, "it is said once"
