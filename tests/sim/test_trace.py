"""Traces as people write them: what is understood, and how what is not is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leased.base.errors import Refused
from leased.sim import trace
from leased.sim.jobs import GIB, MS, S
from tests.conftest import ROOT

GPU = '[gpu]\nmemory = "16GB"\n'
JOB = '[[job]]\nmemory = "1GiB"\ngpu = "5s"\n'


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace.toml"
    path.write_text(text)
    return path


def test_every_key_is_understood(tmp_path: Path) -> None:
    text = """
    [gpu]
    memory = "16GB"
    count = 2
    link_gib_s = 50
    paging_gib_s = 5.5
    daemon_gib_s = 100
    side_by_side = 1.2
    [nodes]
    count = 3
    latency = "2ms"
    [[job]]
    name = "later"
    memory = "500MB"
    bursts = [["1s", 0.5], [2, "250ms"]]
    submit = "1m"
    [[job]]
    name = "train"
    count = 2
    gpus = [1, 0]
    nodes = [2, 0]
    memory = "15.3GB"
    kind = "swap"
    gpu = "5s"
    cpu = "2s"
    cycles = 3
    submit = 1
    every = "2s"
    lock = "on"
    tq = "500ms"
    drain = "100ms"
    touches_gib_s = 200
    idle_check = "5s"
    """
    found = trace.load(write(tmp_path, text))
    assert len(found.gpus) == 2
    assert found.gpus[0].memory == 16 * 10**9
    assert found.gpus[0].link_bytes_s == 50 * GIB
    assert found.gpus[0].paging_bytes_s == 5.5 * GIB
    assert found.gpus[0].daemon_bytes_s == 100 * GIB
    assert [job.name for job in found.jobs] == ["train.0", "train.1", "later"]
    train, later = found.jobs[1], found.jobs[2]
    assert train.bursts == ((5 * S, 2 * S),) * 3
    assert (found.nodes, found.latency) == (3, 2 * MS)
    assert (train.gpus, train.nodes) == ((0, 1), (0, 2))
    assert (train.memory, train.swaps) == (15_300_000_000, True)
    assert later.nodes == (0,)
    assert (train.submit, train.lock, train.quantum) == (3 * S, "on", 500 * MS)
    assert (train.drain, train.idle_check) == (100 * MS, 5 * S)
    assert train.touches_bytes_s == 200 * GIB
    assert later.bursts == ((S, 500 * MS), (2 * S, 250 * MS))
    assert (later.lock, later.quantum, later.swaps) == ("auto", 30 * S, False)


def test_jobs_of_one_table_draw_bursts_of_their_own(tmp_path: Path) -> None:
    text = GPU + JOB + 'cpu = "1s"\ncycles = 4\njitter = 0.5\ncount = 2\n'
    one, other = trace.load(write(tmp_path, text)).jobs
    assert one.bursts != other.bursts
    assert one.gpu_ns == other.gpu_ns == 20 * S


BAD = [
    ("", "the trace has no GPU; write [gpu]"),
    (GPU, "the trace has no jobs; write a table [[job]]"),
    (JOB, "the trace has no GPU"),
    ("gpu = 3\n", "gpu = 3 is not a table; write [gpu] with the keys memory"),
    ("[gpu]\n" + JOB, "gpu.memory is missing; write for example"),
    ("[gpus]\n", "[gpus] is not known; a trace has [gpu], [nodes] and [[job]]"),
    ("[gpu\n", "it is not TOML"),
    (GPU + "color = 1\n" + JOB, "gpu.color is not known; the keys are memory, count"),
    (GPU + "count = 0\n" + JOB, "gpu.count = 0 is out of bounds; write a whole number from 1"),
    (GPU + "link_gib_s = 0\n" + JOB, "gpu.link_gib_s = 0 is out of bounds"),
    (GPU + "link_gib_s = nan\n" + JOB, "gpu.link_gib_s = nan is out of bounds"),
    (GPU + "side_by_side = true\n" + JOB, "gpu.side_by_side = True is out of bounds"),
    ('[gpu]\nmemory = "16XB"\n' + JOB, "gpu.memory = '16XB' is not a size; write bytes"),
    ('[gpu]\nmemory = "0GB"\n' + JOB, "gpu.memory = '0GB' is nothing"),
    (GPU + '[[job]]\nmemory = "1GiB"\n', "job[0].gpu is missing"),
    (GPU + '[[job]]\ngpu = "1s"\n', "job[0].memory is missing"),
    (GPU + JOB + JOB + "x = 1\n", "job[1].x is not known"),
    (GPU + JOB + 'cpu = "-1s"\n', "job[0].cpu = '-1s' is not a time; write seconds, or"),
    (GPU + JOB + "cpu = -1\n", "job[0].cpu = -1 is not a time"),
    (GPU + JOB + "cpu = inf\n", "job[0].cpu = inf is not a time"),
    (GPU + JOB + 'cpu = "5 parsecs"\n', "job[0].cpu = '5 parsecs' is not a time"),
    (GPU + JOB + "cycles = 1.5\n", "job[0].cycles = 1.5 is out of bounds"),
    (GPU + JOB + "jitter = 2\n", "job[0].jitter = 2 is out of bounds"),
    (GPU + JOB + 'lock = "maybe"\n', "job[0].lock = 'maybe' is not known; write one of on, off"),
    (GPU + JOB + 'kind = "pinned"\n', "job[0].kind = 'pinned' is not known"),
    (GPU + JOB + "tq = 0\n", "job[0].tq = 0 is too short"),
    (GPU + JOB + "name = 3\n", "job[0].name = 3 is not a name"),
    (GPU + JOB + "gpus = [1]\n", "job[0].gpus = [1] are not all there; the GPUs are 0 to 0"),
    (GPU + JOB + "gpus = [-1]\n", "job[0].gpus = [-1] are not all there"),
    (GPU + JOB + "gpus = [0, 0]\n", "job[0].gpus = [0, 0] is no list of indices"),
    (GPU + JOB + "gpus = []\n", "job[0].gpus = [] is no list of indices"),
    (GPU + "[nodes]\nlatency = 1\n" + JOB, "nodes.latency = 1 is too long; write at most"),
    (GPU + "[nodes]\ncount = 65\n" + JOB, "nodes.count = 65 is out of bounds"),
    (GPU + JOB + "nodes = [0, 1]\n", "job[0].nodes = [0, 1] are not all there; the nodes are 0 to"),
    (
        GPU + "[nodes]\ncount = 2\n" + JOB + 'nodes = [0, 1]\nlock = "off"\n',
        "job[0] has several nodes and lock = off; write on or auto",
    ),
    (GPU + JOB + "bursts = [[1, 1]]\n", "job[0] has bursts and gpu; write one of the two"),
    (GPU + '[[job]]\nmemory = 1\nbursts = [[1]]\n', "job[0].bursts[0] = [1] is not a burst"),
    (GPU + "[[job]]\nmemory = 1\nbursts = []\n", "job[0].bursts = [] is not a list of bursts"),
    (GPU + "[[job]]\nmemory = 1\ngpu = 0\n", "job[0] does nothing on the GPU"),
    (GPU + '[[job]]\nmemory = "17GB"\ngpu = 1\n', "job[0].memory is more than the GPU has"),
    (GPU + JOB + "count = 6000\n" + JOB + "count = 6000\n", "the trace has 12000 jobs"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), BAD)
def test_bad_input_is_refused_with_its_key_and_a_remedy(
    tmp_path: Path, text: str, said: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(Refused) as refused:
        trace.load(path)
    sentence = refused.value.sentence()
    assert sentence.startswith(f"{path}: ")
    assert said in sentence
    assert refused.value.hint


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="there is no trace"):
        trace.load(tmp_path / "none.toml")
    with pytest.raises(Refused, match="is a directory"):
        trace.load(tmp_path)


def test_the_document_s_example_is_a_trace_and_its_tables_name_every_key(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "simulate.md").read_text()
    example = re.search(r"```toml\n(.*?)```", text, re.S)
    assert example
    assert trace.load(write(tmp_path, example[1])).jobs
    named = re.findall(r"^\| `([a-z_]+)` \|", text, re.M)
    for keys in (trace.GPU_KEYS, trace.NODE_KEYS, trace.JOB_KEYS):
        assert set(keys) <= set(named)
    assert set(named) == {*trace.GPU_KEYS, *trace.NODE_KEYS, *trace.JOB_KEYS}
