"""Usage to Slurm's accounting: on which row, when it is tried, and what is given up. No Slurm."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from leased.base.errors import Refused
from leased.slurm import accounting, accounting_child, usage_record, usage_writer
from leased.slurm.accounting import NO_END, NO_ROW, OTHER_RUNS, RESIZING, JobRow, by_row, row_of
from leased.slurm.accounting_child import decode, encode
from leased.slurm.usage_writer import (
    JOBS_AT_ONCE,
    LAST_S,
    SAY_AGAIN_S,
    Answers,
    UsageWriter,
)
from leased.store.records import TenantRecord
from leased.store.store import Store
from leased.usage.usage import Usage, figures, together
from tests.store.test_store import UUID, tenant, used
from tests.support.together import zip_strict

COMPLETED, REQUEUED = 3, 1024


def run(opened: float, closed: float, job_id: int = 7, **more: object) -> TenantRecord:
    """start: by slurmctld's clock; without it that of the node is right."""
    given = {"start": int(opened), "opened": opened, "closed": closed, **more}
    return replace(tenant(job_id), **given)  # type: ignore[arg-type]


def row(start: int, end: int, job_id: int = 7, state: int = COMPLETED) -> JobRow:
    return JobRow(job_id, 0, accounting.NO_VAL, 0, accounting.NO_VAL, state, start - 1, start, end)


# -- on which row ----------------------------------------------------------------


def test_runs_of_a_requeued_job_are_on_their_rows() -> None:
    rows = [row(100, 200, state=REQUEUED), row(330, 400, state=REQUEUED), row(600, 700)]
    random.Random(1).shuffle(rows)
    for skew in (-300.0, -90.0, 0.0, 90.0, 300.0):
        for began, ended in ((100, 200), (330, 400), (600, 700)):
            mine = run(began + 1 + skew, ended - 0.5 + skew, start=began)
            found = row_of(mine, rows)
            assert found is not None
            assert found.start == began


def test_a_clock_that_is_wrong_keeps_no_usage_from_its_row() -> None:
    """munge allows 300 s."""
    for start in (100, 0):  # which an older plugin does not say
        assert row_of(run(400, 405, start=start), [row(100, 105)]) == row(100, 105)
    assert row_of(run(400, 405, start=0), [row(100, 105), row(106, 110)]) is None
    slurmdb = FakeSlurmdb(row(1000, 1005))
    accounting_child.write_job(slurmdb, [run(1300, 1305, start=1000)], {})  # type: ignore[arg-type]
    accounting_child.write_job(slurmdb, [run(700, 705, start=1000)], {})  # type: ignore[arg-type]
    assert slurmdb.comments.keys() == {row(1000, 1005)}


def test_a_run_whose_row_is_not_there_yet_is_not_on_that_of_the_run_before() -> None:
    """Requeued at once, while slurmdbd is behind."""
    placed, why = by_row([run(201, 230)], [row(100, 200, state=REQUEUED)])
    assert (placed, why) == ({}, {(7, 201): OTHER_RUNS})


def test_a_row_that_slurm_began_anew_once_the_node_was_on() -> None:
    assert row_of(run(100, 200), [row(160, 200), row(300, 400)]) == row(160, 200)


@pytest.mark.parametrize("began", [99, 100])  # Slurm begins the first row up to a second early
def test_a_run_whose_size_has_changed_is_on_the_row_with_its_end(began: int) -> None:
    """Slurm takes memory or nodes back from it, or its user does: sacct calls a row RESIZING."""
    resized = [row(began, 120, state=RESIZING), row(120, 140, state=RESIZING)]
    again = row(300, 400)
    for start in (100, 0):
        assert row_of(run(100, 200, start=start), [*resized, row(140, 200)]) == row(140, 200)
    assert row_of(run(100, 200), [*resized, row(140, 200), again]) == row(140, 200)
    assert by_row([run(100, 200)], [*resized, row(140, 0)])[1] == {(7, 100): NO_END}


def test_a_run_shorter_than_a_second_has_a_row() -> None:
    assert row_of(run(100.4, 100.9), [row(100, 100)]) == row(100, 100)


def test_a_run_of_long_ago_is_on_no_later_row() -> None:
    # A job's number comes again after some months.
    slurmdb = FakeSlurmdb(row(9_000_000, 9_000_100), row(100, 200, job_id=8), row(0, 0))
    accounting_child.write_job(slurmdb, [run(100, 200)], {})  # type: ignore[arg-type]
    assert slurmdb.comments == {}
    assert row_of(run(100, 200), [row(accounting.NO_VAL, 300)]) is None, "cancelled before it ran"


def test_runs_on_one_row_add_up() -> None:
    """A tenant may end before its job does, when its GPU is lost, and begin again."""

    def usage(*figures: int) -> Usage:
        names = ("lease_ns", "shared_ns", "wait_ns", "handoffs", "moved_bytes", "peak_bytes")
        return Usage(**dict(zip_strict((*names, "overruns", "strays"), figures)))

    first, second = usage(5, 6, 7, 8, 9, 10, 1, 0), usage(1, 1, 1, 1, 1, 20, 0, 2)
    parts = [
        run(100, 120, usage={UUID: first}),
        run(130, 190, start=100, usage={UUID: second, "GPU-y": Usage(lease_ns=3)}),
    ]
    placed, why = by_row(parts, [row(100, 200)])
    assert (placed, why) == ({row(100, 200): parts}, {})
    total = together(*(part.usage for part in parts))
    assert total == {UUID: usage(6, 7, 8, 9, 10, 20, 1, 2), "GPU-y": Usage(lease_ns=3)}
    said = usage_record.json_of(accounting.comment(parts))
    assert said["gpus"][UUID]["peak_bytes"] == 20
    assert parts[0].usage[UUID] == usage(5, 6, 7, 8, 9, 10, 1, 0), "the records are as they were"


def test_bytes_of_others_are_given_back_as_they_were() -> None:
    theirs = b"burst buffer: \xff\xfe".decode(errors="surrogateescape")
    text = usage_record.merged(theirs, accounting.comment([run(1, 2)]))
    assert text.encode(errors="surrogateescape").startswith(b"burst buffer: \xff\xfe; gpu-lease: ")


# -- the child --------------------------------------------------------------------


def test_records_reach_the_child_as_they_are() -> None:
    runs = [run(1.25, 2.5, usage=used(5), totals={UUID: 3}), run(3, 4, settled=5.0)]
    again, indices, node = decode(encode(runs, {UUID: 3, "GPU-y": 4}, "a"))
    assert [(r.run, r.closed, r.settled, r.usage) for r in again] == [
        (r.run, r.closed, r.settled, r.usage) for r in runs
    ]
    assert (indices, node) == ({UUID: 3}, "a"), "of its own devices"


class FakeSlurmdb:
    """slurmdbd with some rows. refuses: numbers of jobs whose rows cannot be changed."""

    def __init__(self, *rows: JobRow):
        self.all = rows
        self.comments: dict[JobRow, str] = {}
        self.refuses: set[int] = set()

    def rows(self, job_id: int, since: float, until: float) -> list[JobRow]:
        return [row for row in self.all if row.job_id == job_id and since <= row.start <= until]

    def comment(self, row: JobRow) -> str:
        return self.comments.get(row, "")

    def set_comment(self, row: JobRow, text: str) -> None:
        if row.job_id in self.refuses:
            raise Refused("slurmdbd refused the change")
        self.comments[row] = text


def answers(capsys: pytest.CaptureFixture[str]) -> dict[float, str]:
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    return {line["run"][1]: line["why"] for line in lines}


def test_child_writes_each_run_once_whatever_came_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    slurmdb = FakeSlurmdb(row(100, 200), row(330, 400))
    first, second = run(100, 200, usage=used(5)), run(330, 400, usage=used(8))
    for _ in range(3):  # the daemon may end before it has noted the answer
        accounting_child.write_job(slurmdb, [first], {})  # type: ignore[arg-type]
    accounting_child.write_job(slurmdb, [replace(first, settled=1.0), second], {})  # type: ignore[arg-type]
    said = {r.start: usage_record.json_of(text) for r, text in slurmdb.comments.items()}
    assert said[100]["gpus"] == {UUID: figures(Usage(lease_ns=5))}
    assert said[330]["gpus"] == {UUID: figures(Usage(lease_ns=8))}
    assert answers(capsys) == {100: "", 330: ""}


def test_child_adds_what_the_row_has_already(capsys: pytest.CaptureFixture[str]) -> None:
    slurmdb = FakeSlurmdb(row(100, 200))
    parts = [
        run(100, 120, settled=1.0, usage=used(5_000_000)),
        run(130, 190, start=100, usage=used(8_000_000)),
    ]
    for _ in range(2):
        accounting_child.write_job(slurmdb, parts, {})  # type: ignore[arg-type]
    (text,) = slurmdb.comments.values()
    assert usage_record.json_of(text)["gpus"][UUID]["lease_s"] == 0.013
    assert answers(capsys) == {130: ""}


def test_each_node_of_a_job_has_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the nodes, so that none writes over another; and once, however often."""
    slurmdb = FakeSlurmdb(row(100, 200))
    parts = {
        node: run(
            100, 200 + n, usage={f"GPU-{node}": Usage(lease_ns=n * 10**9)}, nodes=("a", "b", "c")
        )
        for n, node in enumerate("abc")
    }
    for now, nodes in ((210, "bcacbab"), (220, "ccaab"), (9e9, "cba")):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        for node in nodes:
            index = {f"GPU-{node}": 0}
            accounting_child.write_job(slurmdb, [parts[node]], index, node)  # type: ignore[arg-type]
    (text,) = slurmdb.comments.values()
    assert text.count(usage_record.MARK) == 3
    read = usage_record.read(text)
    assert read is not None
    leases = {uuid: had["lease_s"] for uuid, had in read.gpus.items()}
    assert leases == {"GPU-a": 0, "GPU-b": 1, "GPU-c": 2}
    assert read.nodes == {"GPU-a": "a", "GPU-b": "b", "GPU-c": "c"}
    assert (read.since, read.until) == (100, 202)


def test_a_node_that_writes_nothing_is_waited_for_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slurmdb = FakeSlurmdb(row(100, 200))
    third = run(100, 200, usage=used(3), nodes=("a", "b", "c"))
    said: list[str] = []
    for now in (201, 200 + 2 * accounting.NODE_S, 201 + 2 * accounting.NODE_S):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        accounting_child.write_job(slurmdb, [third], {}, "c")  # type: ignore[arg-type]
        said += answers(capsys).values()
    assert said == ["the part of b comes first"] * 2 + [""]
    assert usage_record.nodes(slurmdb.comment(row(100, 200))) == {"c"}


def test_child_says_of_each_run_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    slurmdb = FakeSlurmdb(row(100, 200), row(330, 0), row(10, 20, job_id=8))
    slurmdb.refuses = {8}
    accounting_child.write_job(slurmdb, [run(100, 200), run(330, 400)], {})  # type: ignore[arg-type]
    accounting_child.write_job(slurmdb, [run(10.5, 20, job_id=8)], {})  # type: ignore[arg-type]
    accounting_child.write_job(slurmdb, [run(10.25, 20, job_id=9)], {})  # type: ignore[arg-type]
    assert answers(capsys) == {
        100: "",
        330: NO_END,
        10.5: "slurmdbd refused the change",
        10.25: NO_ROW,
    }


# -- when, how many, how long -------------------------------------------------------


class Slurm:
    """What the writer writes to: notes what it is asked, and answers as a test says."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []  # jobs of each child
        self.written: list[int] = []  # jobs of whose runs it took the usage
        self.answer: Callable[[TenantRecord], str | None] = lambda _: ""  # None: none
        self.fault = ""

    async def write(self, jobs: list[list[TenantRecord]], *_: object) -> Answers:
        self.asked.append([runs[0].job_id for runs in jobs])
        if self.fault:
            return Answers(fault=self.fault)
        made = Answers()
        for record in (record for runs in jobs for record in runs if record.settled is None):
            said = self.answer(record)
            if said is None:
                made.fault = "the writer ended with 139"
                break
            made.done[record.run] = said
            self.written += [record.job_id] * (said == "")
        return made


class Site:
    """A store, a writer, and a clock that only the test moves."""

    def __init__(self, folder: Path):
        self.file = folder / "usage.db"
        self.slurm = Slurm()
        self.loop = asyncio.new_event_loop()
        self.now = 1000.0
        self.today = 1e9
        self.begin()

    def begin(self) -> None:
        """A daemon that is started knows what is on the disk."""
        self.store = Store(self.file)
        self.writer = UsageWriter(
            *(self.store, dict, dict, str),
            clock=lambda: self.now,
            today=lambda: self.today,
            write=self.slurm.write,
        )

    def restart(self) -> None:
        self.store.close()
        self.begin()

    def end(self, *jobs: int) -> None:
        for job in jobs:
            self.store.open_tenant(tenant(job))
            self.store.close_tenant(job, used(job))
            self.writer.usage_added()
        self.today = max((r.closed or 0 for r in self.store.unsettled()), default=self.today)

    def step(self) -> float | None:
        return self.loop.run_until_complete(self.writer.step())

    def play(self, seconds: float) -> int:
        """Let so much time pass, at every moment at which something is due; how many steps."""
        until, steps = self.now + seconds, 0
        while (wait_s := self.step()) is not None and self.now + wait_s <= until:
            self.now += wait_s
            self.today += wait_s
            steps += 1
            assert steps < 10_000, "it is tried without a pause"
        self.now, self.today = until, self.today + until - self.now
        return steps

    @property
    def waiting(self) -> list[int]:
        return [record.job_id for record in self.store.unsettled()]


@pytest.fixture
def site(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Site]:
    caplog.set_level(logging.INFO, "gpu-leased")
    made = Site(tmp_path)
    yield made
    made.loop.close()
    made.store.close()


def test_many_jobs_go_with_one_child(site: Site) -> None:
    site.end(*range(1, 251))
    assert site.step() == 0
    site.play(1)
    assert [len(jobs) for jobs in site.slurm.asked] == [100, 100, 50]
    assert site.waiting == []
    assert site.step() is None
    assert len(site.slurm.asked) == 3, "nothing to write, no child"


def test_a_job_slurm_has_not_heard_of_holds_up_no_other(site: Site) -> None:
    site.slurm.answer = lambda record: NO_END if record.job_id == 1 else ""
    site.end(1, 2, 3)
    assert site.step() == 0.5
    assert site.waiting == [1]
    site.end(4)
    assert site.step() == 0.5, "the pause goes on"
    assert site.slurm.asked == [[1, 2, 3], [4]]
    site.play(24 * 3600)
    tried = len([jobs for jobs in site.slurm.asked if 1 in jobs])
    assert 24 * 3600 / LAST_S <= tried <= 24 * 3600 / LAST_S + 15, "at growing pauses"
    site.slurm.answer = lambda _: ""
    site.play(LAST_S)
    assert site.waiting == []


STARTS = 8  # of the daemon while slurmdbd is away
TO_LONGEST = 12  # tries at growing pauses, until they are LAST_S apart


@pytest.mark.parametrize(("away_s", "jobs"), [(3600, 240), (7 * 86400, 320)], ids=["hour", "week"])
def test_however_long_slurmdbd_is_away_work_is_bounded_and_nothing_is_lost(
    site: Site, caplog: pytest.LogCaptureFixture, away_s: int, jobs: int
) -> None:
    site.slurm.fault = "slurmdbd does not answer"
    for job in range(1, jobs + 1):
        site.end(job)
        site.play(away_s / jobs)
        if job % (jobs // STARTS) == 0 and job < jobs:
            site.restart()
    assert site.waiting == list(range(1, jobs + 1))
    # Children as time passes, not as jobs end: after each start one of many jobs, then of one.
    tries = len(site.slurm.asked)
    assert tries <= away_s / LAST_S + STARTS * TO_LONGEST
    assert sum(map(len, site.slurm.asked)) <= tries + STARTS * JOBS_AT_ONCE
    assert caplog.text.count("slurmdbd does not answer") <= away_s / SAY_AGAIN_S + STARTS

    # It is back, and slurmctld brings it the ends of the later jobs half an hour after the others.
    site.slurm.fault, site.slurm.asked = "", []
    site.slurm.answer = lambda record: NO_END if record.job_id > jobs / 2 else ""
    site.play(LAST_S + 1800)
    assert caplog.text.count("takes usage again") == 1
    assert site.waiting == list(range(jobs // 2 + 1, jobs + 1))
    site.slurm.answer = lambda _: ""
    site.play(LAST_S)
    assert sorted(site.slurm.written) == list(range(1, jobs + 1)), "each once"
    batches = math.ceil(jobs / JOBS_AT_ONCE)
    assert len(site.slurm.asked) <= batches * (TO_LONGEST + (1800 + 2 * LAST_S) / LAST_S)
    assert site.step() is None
    assert site.writer.pauses == {}, "nothing is remembered of it"


def test_jobs_that_end_while_slurmdbd_is_away_cost_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that waits was looked at when a job ended, in the loop that decides about leases."""
    site.slurm.fault = "slurmdbd does not answer"
    site.end(*range(1, 10))
    site.play(3600)  # until the pauses are longer than this test
    looks = []
    step = site.writer.step

    async def counted() -> float | None:
        looks.append(site.now)
        return await step()

    async def many_jobs_end() -> None:
        begun = asyncio.ensure_future(site.writer.write_usage())
        for _ in range(100):
            await asyncio.sleep(0)
            site.writer.usage_added()
        begun.cancel()

    monkeypatch.setattr(site.writer, "step", counted)
    site.loop.run_until_complete(many_jobs_end())
    assert len(looks) == 1
    site.slurm.fault = ""
    site.play(LAST_S)
    assert site.waiting == []


def test_a_record_that_ends_its_child_holds_up_no_other(site: Site) -> None:
    site.slurm.answer = lambda record: None if record.job_id == 10 else ""
    site.end(*range(1, 21))
    site.play(60)
    assert site.waiting == [10]
    assert site.slurm.asked[1][:2] == [11, 12], "what is behind it comes next"
    site.end(21)
    site.play(LAST_S * 2)
    assert site.waiting == [10]
    site.slurm.answer = lambda _: ""
    site.play(LAST_S * 2)
    assert site.waiting == []


def test_what_waits_for_longer_than_a_minute_is_named_with_its_reason(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.slurm.answer = lambda record: NO_ROW if record.job_id == 1 else ""
    site.end(1, 2)
    site.play(50)
    assert site.writer.waiting() == {"runs": 0, "first": []}
    line = f"usage of job 1 is not in Slurm's accounting yet: {NO_ROW}"
    assert line not in caplog.text
    site.play(3600)
    assert caplog.text.count(line) == 1
    told = site.writer.waiting()
    assert told["runs"] == 1
    (one,) = told["first"]
    assert (one["job"], one["why"]) == ("1", NO_ROW)
    assert 3600 < one["since_s"] < 3700
    site.slurm.fault = "slurmdbd does not answer"
    site.end(*range(3, 20))
    site.play(120)
    told = site.writer.waiting()
    assert (told["runs"], len(told["first"])) == (18, 8)
    assert {one["why"] for one in told["first"]} == {"slurmdbd does not answer"}


def test_the_backlog_is_bounded_and_nothing_goes_in_silence(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_writer, "WAITING_MOST", 10)
    monkeypatch.setattr(usage_writer, "WAITING_WARN", 8)
    site.slurm.fault = "slurmdbd does not answer"
    site.end(*range(1, 8))
    site.play(5)
    assert "given up" not in caplog.text
    site.end(8)
    site.play(5)
    assert caplog.text.count("usage of 8 jobs waits for Slurm's accounting") == 1
    assert "beyond 10 the oldest will be given up" in caplog.text
    site.end(9, 10, 11, 12)
    site.play(5)
    assert site.waiting == list(range(3, 13))
    for job in (1, 2):
        line = f"usage of job {job} is given up, since Slurm's accounting did not take it: "
        assert caplog.text.count(line) == 1
        (said,) = (r.getMessage() for r in caplog.records if r.getMessage().startswith(line))
        assert usage_record.json_of(said)["gpus"][UUID]["lease_s"] == 0
        (found,) = site.store.find(job)  # gpu-leasectl usage has it still
        assert found.usage == used(job)


def test_the_bound_holds_while_nobody_looks(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While slurmdbd does not answer there are ten minutes between two tries."""
    monkeypatch.setattr(usage_writer, "WAITING_MOST", 200)
    site.slurm.fault = "slurmdbd does not answer"
    looks, unsettled = [0], site.store.unsettled

    def counted() -> list[TenantRecord]:
        looks[0] += 1
        return unsettled()

    monkeypatch.setattr(site.store, "unsettled", counted)
    for job in range(1, 301):
        site.end(job)
        assert len(unsettled()) <= 200
    assert looks[0] - 300 <= 1 + 300 // 2, "those of site.end() are not counted"
    assert caplog.text.count("is given up") == 300 - len(unsettled())
    assert unsettled()[-1].job_id == 300


def test_usage_that_waits_for_a_month_is_given_up(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.slurm.answer = lambda _: NO_END
    site.end(1)
    site.today += 29 * 86400
    site.play(3600)
    assert site.waiting == [1]
    site.today += 2 * 86400
    site.play(3600)
    assert site.waiting == []
    assert "usage of job 1 is given up" in caplog.text


# -- answers of a child that is not ours ------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "raise SystemExit(3)",
        "print('garbage'); print('[]'); print('{\"run\": 7}')",
        "import os; os.kill(os.getpid(), 11)",
        'print(\'{"run": [7, "x"], "done": true}\')',
        "while True: print('x' * 1000)",
        "import os; os.write(1, bytes(range(256)))",
    ],
)
def test_anything_that_the_child_does_is_an_answer(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_writer, "CHILD", code)
    found = asyncio.run(usage_writer.write([[run(1, 2)]], {}, {}, ""))
    assert found.done == {}


def test_a_child_that_hangs_is_ended_and_its_answers_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = json.dumps({"run": [7, 1.0], "done": True, "why": ""})
    code = f"import time; print({line!r}, flush=True); time.sleep(600)"
    monkeypatch.setattr(usage_writer, "CHILD", code)
    monkeypatch.setattr(usage_writer, "PATIENCE_S", 1.0)
    found = asyncio.run(usage_writer.write([[run(1, 2)], [run(1, 2, 8)]], {}, {}, ""))
    assert found.done == {(7, 1.0): ""}
    assert "took longer" in found.fault


def test_a_python_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    found = asyncio.run(usage_writer.write([[run(1, 2)]], {}, {}, ""))
    assert "cannot be started" in found.fault
