"""The steps in a job's record: as many as fit, read back as they were written."""

from __future__ import annotations

import json

import pytest

from leased.slurm import step_record
from leased.slurm.accounting import comment
from leased.slurm.accounting_child import decode, encode
from leased.slurm.usage_record import LONGEST, Damaged, json_of, read, record
from leased.store.records import TenantRecord
from leased.usage.step_usage import OTHERS, StepUsage
from leased.usage.usage import Usage

S = 1_000_000_000
GPU = "GPU-e0e7eef5-fc03-0a11-181f-262d343b4200"


def steps(count: int, gpus: int = 1) -> dict[str, StepUsage]:
    """Step n has held each device for n s."""
    uuids = [f"GPU-{n:08x}-fc03-0a11-181f-262d343b4200" for n in range(gpus)]
    return {
        str(n): StepUsage(
            100.0 + n, 101.0 + n, {u: Usage(time_ns=9 * S, lease_ns=n * S) for u in uuids}
        )
        for n in range(count)
    }


def test_they_are_read_as_they_were_written() -> None:
    run = read(record({GPU: Usage()}, "on", 100, 162, {GPU: 0}, steps=steps(2)))
    assert run is not None
    assert set(run.steps) == {"0", "1"}
    one = run.steps["1"]
    assert (one.since, one.until, list(one.gpus.values())) == (
        *(101.0, 102.0),
        [{"time_s": 9.0, "lease_s": 1.0}],
    )


def test_a_job_without_known_steps_says_nothing_of_them() -> None:
    assert "steps" not in json_of(record({GPU: Usage()}, "on", 0, 1, {}))


@pytest.mark.parametrize(("count", "gpus"), [(40, 1), (40, 8), (3, 600)])
def test_the_steps_that_held_longest_are_named_and_the_sums_stay(count: int, gpus: int) -> None:
    many = steps(count, gpus)
    said = step_record.said(many)
    assert len(json.dumps(said, separators=(",", ":"))) <= step_record.LONGEST
    if gpus > 500:  # not even their sum has room
        assert said == {}
        return
    assert OTHERS in said
    assert str(count - 1) in said
    assert "0" not in said
    assert said[OTHERS]["from"] == 100.0
    for uuid in many["0"].usage:
        leases = [step["gpus"][uuid]["lease_s"] for step in said.values()]
        assert sum(leases) == sum(range(count))


def test_in_little_room_the_steps_go_before_the_devices() -> None:
    usage = {GPU: Usage(lease_ns=S)}
    alone = record(usage, "on", 0, 1, {GPU: 0})
    room = len(alone.encode()) + 100
    assert record(usage, "on", 0, 1, {GPU: 0}, steps=steps(9), room=room) == alone
    for room in range(len(alone), len(alone) + 3000, 7):
        assert len(record(usage, "on", 0, 1, {GPU: 0}, steps=steps(9), room=room).encode()) <= room


def test_it_stays_far_below_what_slurm_keeps() -> None:
    usage = {f"GPU-{n:08x}-fc03-0a11-181f-262d343b4200": Usage(lease_ns=S) for n in range(16)}
    assert len(record(usage, "on", 0, 1, {}, steps=steps(33, 16)).encode()) < LONGEST // 2


def test_damaged_steps_are_a_damaged_record() -> None:
    text = record({GPU: Usage()}, "on", 0, 1, {}, steps=steps(1))
    for spoilt in ('"to":"x"', '"to":-1'):
        with pytest.raises(Damaged):
            read(text.replace('"to":101.0', spoilt))


def test_the_child_that_writes_them_gets_them_and_runs_on_a_row_are_added_up() -> None:
    runs = [
        TenantRecord(7, 1, (GPU,), "", "on", {GPU: Usage()}, opened=o, closed=o + 9, steps=steps(2))
        for o in (90.0, 100.0)
    ]
    told, indices, _ = decode(encode(runs, {GPU: 0}))
    assert [(run.run, run.usage, run.steps) for run in told] == [
        (run.run, run.usage, run.steps) for run in runs
    ]
    found = read(comment(told, indices))
    assert found is not None
    (figures,) = found.steps["1"].gpus.values()
    assert figures["lease_s"] == 2.0
