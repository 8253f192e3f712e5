"""The text of a job's usage in Slurm's accounting: for people, for programs, beside others'."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased.base.errors import Refused
from leased.slurm import usage_record
from leased.slurm.usage_record import LONGEST, MARK, Damaged, merged, read, record
from leased.usage.step_usage import StepUsage
from leased.usage.usage import Usage, figures

S = 1_000_000_000
GPU, OTHER = "GPU-e0e7eef5-fc03-0a11-181f-262d343b4200", "GPU-11111111-0000-0000-0000-000000000000"
USED = Usage(time_ns=62 * S, lease_ns=41 * S, wait_ns=19 * S, handoffs=12, peak_bytes=1 << 30)
# As releases before wrote it.


def ours(count: int = 1, room: int = LONGEST) -> str:
    uuids = [f"GPU-{n:08x}-fc03-0a11-181f-262d343b4200" for n in range(count)]
    usage = dict.fromkeys(uuids, USED)
    return record(usage, "auto", 100.0, 162.0, {uuid: n for n, uuid in enumerate(uuids)}, room=room)


def test_people_read_it_first() -> None:
    text = record({GPU: USED, OTHER: Usage()}, "on", 100, 162, {GPU: 0})
    words, _, said = text.partition(" {")
    assert words == (
        "gpu-lease: GPU 0: 41 s of 62 s, waited 19 s, 12 handoffs; "
        "GPU-11111111: 0.0 s of 0.0 s, waited 0.0 s, 0 handoffs"
    )
    found = json.loads("{" + said)
    assert found["gpus"][GPU] == {"gpu": 0} | figures(USED)
    assert (found["v"], found["lock"], found["from"], found["to"]) == (2, "on", 100, 162)


def test_a_class_is_said_where_there_is_one() -> None:
    assert '"class":"online"' in record({GPU: USED}, "on", 100, 162, {}, job_class="online")
    assert "class" not in record({GPU: USED}, "on", 100, 162, {})


def test_long_times_are_hours_and_one_handoff_is_one() -> None:
    text = record({GPU: Usage(time_ns=9000 * S, lease_ns=S, handoffs=1)}, "on", 0, 1, {GPU: 3})
    assert text.startswith("gpu-lease: GPU 3: 1.0 s of 2.5 h, waited 0.0 s, 1 handoff {")


def test_it_is_read_as_it_was_written() -> None:
    run = read(record({GPU: USED}, "on", 100.04, 162.0, {GPU: 0}))
    assert run is not None
    assert (run.lock, run.since, run.until) == ("on", 100.0, 162.0)
    assert run.gpus == {GPU: figures(USED)}
    assert (run.indices, run.cut) == ({GPU: 0}, 0)


def test_of_many_devices_the_totals_stay() -> None:
    room = 900
    text = ours(16, room)
    assert len(text.encode()) <= room
    assert "GPU 3: 41 s of 62 s, waited 19 s, 12 handoffs; and 12 GPUs more {" in text
    run = read(text)
    assert run is not None
    assert (run.cut, run.gpus) == (16, {})
    assert run.total["lease_s"] == 16 * 41
    assert run.total["peak_bytes"] == 1 << 30, "the most of any"


def test_a_node_full_of_devices_fits() -> None:
    assert read(ours(64)) is not None
    assert '"cut"' not in ours(64)


@pytest.mark.parametrize("there", ["", "checked by ops", "JS1:H4sIAAAA==", "see gpu-lease: docs"])
def test_others_text_stays_wherever_it_stands(there: str) -> None:
    once = merged(there, ours())
    assert once == (f"{there}; {ours()}" if there else ours())
    assert merged(once, ours()) == once
    behind = merged(once + "; added later", ours())
    assert behind == "; ".join(part for part in (there, "added later", ours()) if part)


def test_the_record_fits_into_the_room_that_others_leave() -> None:
    theirs = "x" * (LONGEST - 1000)
    text = merged(theirs, ours(16, usage_record.room(theirs)))
    assert len(text) <= LONGEST
    assert text.startswith(theirs)
    assert '"cut":16' in text
    with pytest.raises(Refused, match="Slurm keeps only 65535"):
        merged("x" * LONGEST, ours())


def of_node(node: str, uuid: str, lease_s: int, room: int = LONGEST) -> str:
    usage = {uuid: Usage(time_ns=9 * S, lease_ns=lease_s * S, peak_bytes=lease_s)}
    steps = {"0": StepUsage(lease_s, 10 + lease_s, usage)}
    times = 10.0 - lease_s, 20.0 + lease_s
    return record(usage, "on", *times, {uuid: 1}, steps=steps, node=node, room=room)


def test_the_parts_of_several_nodes_are_one_record() -> None:
    text = ""
    for node, lease_s in (("a1", 3), ("a2", 4), ("a1", 5)):
        text = merged(text, of_node(node, f"GPU-{node}", lease_s), node)
    assert usage_record.nodes(text) == {"a1", "a2"}
    assert text.startswith("gpu-lease: a2: GPU 1: 4.0 s of 9.0 s")
    run = read(text)
    assert run is not None
    assert {uuid: each["lease_s"] for uuid, each in run.gpus.items()} == {"GPU-a1": 5, "GPU-a2": 4}
    assert (run.nodes, run.indices) == (
        {"GPU-a1": "a1", "GPU-a2": "a2"},
        {"GPU-a1": 1, "GPU-a2": 1},
    )
    assert (run.since, run.until) == (5, 25)
    step = run.steps["0"]
    assert (step.since, step.until, len(step.gpus)) == (4, 15, 2)
    assert usage_record.others("theirs; " + text, "a1").count(MARK) == 1


def test_nodes_with_no_room_add_up_and_their_peak_does_not() -> None:
    text = merged(of_node("a", "GPU-a", 3, 0), of_node("b", "GPU-b", 4, 0), "b")
    run = read(text)
    assert run is not None
    total = run.total
    assert (run.cut, total["lease_s"], total["time_s"], total["peak_bytes"]) == (2, 7, 18, 4)
    mixed = read(merged(text, of_node("a", "GPU-a", 3), "a"))
    assert mixed is not None
    parts = [mixed.total, *mixed.gpus.values()]
    assert sorted(each["lease_s"] for each in parts) == [3, 4]


def test_a_damaged_part_takes_no_other_nodes_with_it() -> None:
    damaged = MARK + 'x {"v":2,"node":"a",'
    text = f"{damaged}; {of_node('b', 'GPU-b', 4)}"
    assert usage_record.nodes(text) == {"", "b"}
    assert merged(text, of_node("b", "GPU-b", 5), "b").startswith(damaged)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"v":3,"gpus":{}}', "is of version 3, and this release knows 2"),
        ('{"v":true,"gpus":{}}', "is of version"),
        ('{"v":"2"}', "is of version"),
        ('{"v":2,"gpus":{"GPU-x":{"lease_s":1', "is not JSON"),
        ('{"v":2,"gpus":[]}', "damaged"),
        ('{"v":2,"gpus":{"GPU-x":7}}', "damaged"),
        ('{"v":2,"gpus":{"GPU-x":{"lease_s":-1}}}', "damaged"),
        ('{"v":2,"gpus":{"GPU-x":{"lease_s":"1"}}}', "damaged"),
        ('{"v":2,"gpus":{"GPU-x":{"lease_s":NaN}}}', "damaged"),
        ('{"v":2,"gpus":{},"from":1,"to":2,"cut":3}', "damaged"),
        ('{"v":2,"gpus":{},"from":"now","to":2}', "damaged"),
        ('{"v":2,"gpus":{},"from":1}', "damaged"),
    ],
)
def test_an_unreadable_record_is_described_in_a_sentence(text: str, why: str) -> None:
    with pytest.raises(Damaged, match=why) as fault:
        read(f"{MARK}words {text}")
    assert "\n" not in str(fault.value)


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_comment_is_read_or_refused(before: str, behind: str) -> None:
    for text in (before, before + MARK + behind, before + MARK + '{"v":2,' + behind):
        with contextlib.suppress(Damaged):
            read(text)
    assert read(f"{before.replace('{', '')}; {ours()}; {behind}") is not None
