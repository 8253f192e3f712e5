"""Jobs and nodes as each release of Slurm prints them (tests/matrix/record_answers.py)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased.slurm import json_answers, nodes_json, queue_json
from leased.slurm.json_answers import Entries, Read, Unreadable, read_of
from leased.slurm.queue_json import QueuedJob

DATA = Path(__file__).parent / "data"
RELEASES = ["22_05", "24_11", "26_05"]
# The one that has nodes one by one.
NODES = {"22_05": "sinfo", "24_11": "scontrol", "26_05": "scontrol"}

TEXTS = st.text(max_size=6) | st.text('"\\[]{},: ', max_size=8)
JSON = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)

every_release = pytest.mark.parametrize("release", RELEASES)


@cache
def answers(release: str) -> dict[str, Any]:
    return dict(json.loads((DATA / f"answers_{release}.json").read_text()))


def text(release: str, command: str) -> str:
    return json.dumps(answers(release)[command])


def jobs(release: str) -> dict[str, QueuedJob]:
    read = read_of(text(release, "squeue"), queue_json.Jobs())
    assert read.not_understood == 0
    return {job.label: job for job in read.found}


def one_job(**said: object) -> QueuedJob:
    """Of an answer that says this of it."""
    job = {"job_id": 1, "user_id": 1, "priority": 1, **said}
    (found,) = read_of(json.dumps({"jobs": [job]}), queue_json.Jobs()).found
    return found  # type: ignore[no-any-return]


@every_release
def test_names_of_jobs(release: str) -> None:
    assert {"runs", "held", "array"} <= {job.name for job in jobs(release).values()}


@every_release
def test_nodes(release: str) -> None:
    read = read_of(text(release, NODES[release]), nodes_json.Nodes())
    assert read.not_understood == 0
    one, two = read.found
    assert (one.name, one.usable, one.idle_cpus, one.comment) == ("n1", True, 61, "of the node")
    assert (two.name, two.usable, two.idle_cpus, two.comment) == ("n2", False, 64, "")
    for node in read.found:
        assert (node.gpus, node.partitions) == ((("", 4), ("", 4)), ("gpu",))
        assert (node.free_memory, node.features) == (4000, frozenset())


@pytest.mark.parametrize("release", ["24_11", "26_05"])
def test_groups_of_nodes_are_not_taken_for_nodes(release: str) -> None:
    with pytest.raises(nodes_json.Grouped):
        read_of(text(release, "sinfo"), nodes_json.Nodes())


@every_release
def test_a_job_that_runs(release: str) -> None:
    job = jobs(release)["1"]
    assert job.active
    assert (job.nodes, job.given, job.shards) == ("n1", {0: 1}, 1)
    assert (job.comment, job.admin_comment) == ("of its user", "")
    assert (job.limit_s, job.end) == (0, 0), "nobody has given it one"


@pytest.mark.parametrize(
    ("state", "limit", "end", "read"),
    [
        ("RUNNING", 5, 1700, (300, 1700)),
        ("RUNNING", {"set": True, "infinite": False, "number": 5}, 1700, (300, 1700)),
        ("RUNNING", None, 1700, (0, 0)),
        ("RUNNING", {"set": True, "infinite": True, "number": 0}, 1700, (0, 0)),
        ("SUSPENDED", 5, 1700, (300, 0)),
        ("RUNNING", "soon", [], (0, 0)),
        ("RUNNING", 365 * 24 * 60, 1700, (0, 0)),
        (["RUNNING", "CONFIGURING"], 5, 1700, (300, 1700)),
    ],
)
def test_when_a_job_ends(state: object, limit: object, end: object, read: tuple[int, int]) -> None:
    job = one_job(job_state=state, time_limit=limit, end_time=end)
    assert (job.limit_s, job.end) == read


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("COMPLETING", "COMPLETING"),
        (["CANCELLED", "COMPLETING"], "COMPLETING"),
        (["RUNNING"], "RUNNING"),
        (["CANCELLED"], "CANCELLED"),
    ],
    ids=str,
)
def test_a_job_that_is_ending(said: object, read: str) -> None:
    """Later releases say first how it has ended."""
    assert one_job(job_state=said).state == read


@every_release
def test_a_job_that_is_put_off(release: str) -> None:
    job = jobs(release)["3"]
    assert job.pending
    assert not job.held
    assert job.reason == "BeginTime"
    assert 3590 < job.begin - jobs(release)["1"].begin < 3620
    assert (job.excluded, job.memory, job.cpus) == ("n2", 100, 1)
    assert (job.limit_s, job.end) == (0, 0)
    assert job.admin_comment == "[gpu-lease-placer 0 9 a:b]"


@every_release
def test_a_held_job_and_a_comment_of_two_lines(release: str) -> None:
    job = jobs(release)["4"]
    assert job.held
    assert (job.reason, job.comment) == ("JobHeldUser", "line\nand line")


@every_release
def test_an_array(release: str) -> None:
    found = jobs(release)
    for label in ("2_1", "2_3"):
        assert found[label].active
        assert (found[label].array_id, found[label].given) == (2, {0: 1})
    left = found["2_[5,7,9]"]
    assert (left.tasks, left.tasks_at_once, left.required) == ("5,7,9", 2, "n1")


@every_release
def test_a_heterogeneous_job_and_a_required_node(release: str) -> None:
    found = jobs(release)
    assert found["5"].required == "n2"
    assert [found[label].is_het for label in ("5", "6", "7")] == [False, True, True]


def test_a_node_whose_shards_slurmctld_does_not_know_yet_takes_no_jobs() -> None:
    """So Slurm 22.05 shows nodes on which jobs run, for a while after a restart of slurmctld."""
    node = {"name": "n1", "state": "mixed", "partitions": ["gpu"], "gres": "gpu:2,shard:0"}
    nodes = [node, node | {"name": "n2", "gres": "gpu:2"}, node | {"name": "n3", "gres": ""}]
    (found,) = read_of(json.dumps({"nodes": nodes}), nodes_json.Nodes()).found
    assert (found.name, found.usable) == ("n1", False)
    assert found.gpus == (("", nodes_json.UNKNOWN), ("", nodes_json.UNKNOWN))


@pytest.mark.parametrize(
    ("gres", "used", "shards"),
    [
        ("gpu:2,shard:7", "", [3, 4]),
        ("gpu:2(S:0),shard:8(S:0)", "gpu:(null):0(IDX:N/A),shard:(null):0(IDX:N/A)", [4, 4]),
        ("gpu:2,shard:16", "gpu:0(IDX:N/A),shard:(null):3(3/4,0/12)", [4, 12]),
        ("gpu:x:2,shard:7", "gpu:x:1(IDX:0),shard:x:0(0/3,0/4)", [3, 4]),
        ("gpu:a:1,gpu:b:2,shard:6", "shard:a:0(0/1),shard:b:2(2/2,0/3)", [1, 2, 3]),
        ("gpu:a:1,gpu:b:2,shard:a:1,shard:b:5", "", [1, 2, 3]),
        ("gpu:2,shard:8", "shard:3(3/4)", [4, 4]),
        ("gpu:2,shard:2K", "", [1024, 1024]),
    ],
)
def test_shards_of_each_gpu(gres: str, used: str, shards: list[int]) -> None:
    assert [number for _, number in nodes_json.gpus_of(gres, used)] == shards


@pytest.mark.parametrize(
    ("text", "shards"),
    [
        *(("gres:shard:2", 2), ("gres/shard", 1), ("gres:gres/shard:3", 3), ("gres/shard=2", 2)),
        *(("gres/shard:x:1K", 1024), ("gres/gpu:2", 0), ("gres:gpu:0,gres:shard:4", 4)),
    ],
)
def test_shards_that_a_job_asks_for(text: str, shards: int) -> None:
    assert one_job(job_state="PENDING", tres_per_node=text).shards == shards


WHOLE = (
    '{"meta": {"a": ["]}", {"jobs": [1]}]}, '
    '"jobs": [{"n": "a\\"]}{[\\\\"}, 5, {}, [{}], {"n": ""}], "x": 1}'
)


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_an_answer_is_read_wherever_it_is_cut(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(json_answers, "STEP", 1)
    entries = Entries("jobs", lambda said: said["n"])
    for at in range(0, len(WHOLE), step):
        entries.feed(WHOLE[at : at + step].encode())
    assert entries.end() == Read(('a"]}{[\\', ""), 3)
    assert entries.there == {"meta", "jobs", "x"}


@given(
    st.dictionaries(st.text(max_size=3), JSON, max_size=4), st.lists(JSON, max_size=4), st.data()
)
def test_entries_are_those_of_the_whole_answer(
    before: dict[str, Any], listed: list[Any], data: st.DataObject
) -> None:
    """Whatever texts it has, and whatever stands before the list."""
    before.pop("jobs", None)
    before.pop("errors", None)
    text = json.dumps({**before, "jobs": listed}, ensure_ascii=data.draw(st.booleans()))
    read = read_of(text, Entries("jobs", lambda said: said))
    assert list(read.found) == [one for one in listed if isinstance(one, dict)]
    with pytest.raises(Unreadable):
        read_of(text[: data.draw(st.integers(0, len(text) - 1))], Entries("jobs", dict))
