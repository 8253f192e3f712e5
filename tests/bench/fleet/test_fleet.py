"""The fleet's simulation keeps its books: with a tiny trace that was made up."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leased.matching.model import SHIPPED, read
from tests.bench.fleet import trace as traces
from tests.bench.fleet.__main__ import SYSTEMS, figures, system
from tests.bench.fleet.run import Outcome, Simulation
from tests.bench.fleet.speeds import Speeds
from tests.bench.fleet.systems import BestFit, Matched
from tests.bench.fleet.tasks import GIB, MEMORY, Day, Offline, Online, make
from tests.bench.fleet.trace import DAY_S, STEP_S, STEPS, Days, Trace

pytest.importorskip("scipy.optimize")  # before a test: it starts threads that stay

SERVER, TRAINING = "serve_stream", "train_stream"
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,1,1,2,T4\nn1,1,1,4,G2\n"
TASKS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\n"
    "a,1,1,1,1000,,LS,Running,0,100,0\n"
    "b,1,1,2,1000,,LS,Running,5,100,5\n"
    "c,1,1,0,0,,LS,Running,5,100,5\n"
    "d,1,1,1,320,,BE,Succeeded,90000,93600,90001\n"
    "e,1,1,1,1000,,Burstable,Running,5,100,5\n"
)


def samples(columns: Sequence[str], rows: Sequence[tuple[float, float, str]]) -> str:
    """rows: time, value, pod."""
    names = ("timestamp_anon", "value", "container_ip")
    at = [names.index(column) for column in columns]
    return "\n".join([",".join(columns), *(",".join(str(r[n]) for n in at) for r in rows)]) + "\n"


def write_trace(folder: Path) -> Path:
    (folder / traces.NODES).write_text(NODES)
    (folder / traces.TASKS).write_text(TASKS)
    day = [(1000.0 + s, 25.0 + (s > 60), "p") for s in (0, 57, 114, 60_000)]
    short = [(1000.0, 99.0, "gone")]
    for name, columns in (
        (traces.DUTY, ("value", "timestamp_anon", "container_ip")),
        (traces.MEMORY, ("timestamp_anon", "value", "container_ip")),
    ):
        text = samples(columns, day + short).encode()
        with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as tar:
            info = tarfile.TarInfo(f"{name}.csv")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
    return folder


def test_a_trace_is_read(tmp_path: Path) -> None:
    found = traces.read(write_trace(tmp_path))
    assert found.nodes == (2, 4)
    assert [(task.online, task.gpus, task.part) for task in found.tasks] == [
        (True, 1, 1.0),
        (True, 2, 1.0),
        (False, 1, 0.32),
    ]
    assert found.tasks[2].takes == 3600
    assert found.days.pods == 1  # the other one has no day
    assert found.days.duty.shape == (1, STEPS)
    assert list(found.days.duty[0, :3]) == [0.25, 0.25, 0.26]
    assert found.days.duty[0, -1] == 0.26


def test_a_file_that_is_missing_is_named_with_where_to_get_it(tmp_path: Path) -> None:
    write_trace(tmp_path)
    (tmp_path / traces.NODES).unlink()
    with pytest.raises(SystemExit, match=f"{traces.NODES} is not there.*alibaba/clusterdata"):
        traces.read(tmp_path)


def test_offline_tasks_come_at_their_time_of_day_until_there_is_so_much_work(
    tmp_path: Path,
) -> None:
    trace = traces.read(write_trace(tmp_path))
    day = make(trace, [SERVER], [TRAINING], load=1.0)
    free = sum(trace.nodes) - 3
    work = sum(task.work for task in day.offline)
    assert free * DAY_S <= work < free * DAY_S + 3600
    assert {task.comes for task in day.offline} == {90_000 % DAY_S}


# -- the books ---------------------------------------------------------------------------

PODS = 3
SHORT = 120  # steps of a day of the tests
TASK = st.builds(
    Offline,
    part=st.sampled_from([0.25, 0.5, 1.0]),
    comes=st.floats(0, SHORT * STEP_S - 1),
    work=st.floats(1, 2 * 3600),
    memory=st.none(),
    program=st.sampled_from([TRAINING, "train_small"]),
)
ONLINE = st.builds(
    Online,
    gpus=st.sampled_from([1, 1, 2]),
    part=st.sampled_from([0.5, 1.0]),
    pod=st.integers(0, PODS - 1),
    program=st.sampled_from([SERVER, "serve_small"]),
)


@st.composite
def days(draw: st.DrawFn) -> tuple[Day, Days]:
    """Online tasks whose memory may rise until nothing fits beside it."""
    offline = [
        Offline(t.part, t.comes, t.work, round(0.4 * t.part * MEMORY), t.program)
        for t in draw(st.lists(TASK, max_size=12))
    ]
    online = draw(st.lists(ONLINE, max_size=3))
    steps = np.arange(SHORT)
    duty = np.array([draw(st.floats(0, 1)) * (steps // 10 % 2) for _ in range(PODS)])
    most = [draw(st.integers(0, 75)) * GIB for _ in range(PODS)]
    memory = np.array([each * (0.3 + 0.7 * (steps // 30 % 2)) for each in most])
    parts = [Online(o.gpus, 1.0 if o.gpus > 1 else o.part, o.pod, o.program) for o in online]
    day = Day(tuple(parts), tuple(sorted(offline, key=lambda task: task.comes)))
    return day, Days(duty, memory)


def play(name: str, day: Day, of: Days, nodes: tuple[int, ...] = (2, 4)) -> Outcome:
    trace, speeds = Trace(nodes, (), of), Speeds.shipped()
    return Simulation(day, of, speeds, system(name, trace, speeds), sum(nodes)).run()


@pytest.mark.parametrize("name", SYSTEMS)
@given(given_day=days())
@settings(max_examples=15, deadline=None)
def test_the_books_are_right(name: str, given_day: tuple[Day, Days]) -> None:
    day, of = given_day
    found = play(name, day, of)
    work = sum(task.work for task in day.offline)
    assert found.done == pytest.approx(work - found.left + found.lost)  # nothing is lost or made
    ended = ~np.isnan(found.ends)
    assert np.all(found.ends[ended] - found.comes[ended] >= found.work[ended] - 1e-6)
    assert np.all(found.first[ended] >= found.comes[ended])
    assert found.most_memory <= MEMORY
    assert len(found.busy) == SHORT
    assert 0 <= min(found.busy) <= max(found.busy) <= 1
    assert found.starts >= found.evicted
    if name in ("exclusive", "time_sharing"):
        assert found.evicted == 0


def one(pod_memory: float, duty: float, tasks: Sequence[Offline]) -> tuple[Day, Days]:
    """A GPU with an online task."""
    full = np.ones((1, SHORT))
    return Day((Online(1, 1.0, 0, SERVER),), tuple(tasks)), Days(full * duty, full * pod_memory)


def training(comes: float = 0.0, work: float = 3600.0, gib: int = 8) -> Offline:
    return Offline(1.0, comes, work, gib * GIB, TRAINING)


def test_a_task_alone_takes_its_work_and_ends_within_a_step() -> None:
    _, of = one(0, 0, [])
    found = play("exclusive", Day((), (training(comes=90.0, work=3630.0),)), of)
    begins = -(-90 // STEP_S) * STEP_S
    assert found.ends[0] == pytest.approx(begins + 3630)


def test_one_gpu_is_shared_and_an_exclusive_one_is_not() -> None:
    day, of = one(8 * GIB, 0.1, [training()])
    assert np.isnan(play("exclusive", day, of, (1,)).ends[0])
    assert np.isnan(play("time_sharing", day, of, (1,)).ends[0])  # the online task asks for all
    for name in ("ours", "without_predictor"):
        found = play(name, day, of, (1,))
        assert 3600 < found.ends[0] < 3 * SHORT * STEP_S
        assert found.slowdown(0.99) <= 1.06


def test_work_that_does_not_fit_waits_or_is_evicted_and_loses_little() -> None:
    day, of = one(8 * GIB, 0.0, [training(work=5000)])
    of.memory[0, 30:60] = 78 * GIB
    blind = BestFit((1,), MEMORY)
    simulation = Simulation(day, of, Speeds.shipped(), blind, 1)
    blind.online[0] = Speeds.shipped().profiles[SERVER]  # as if nobody had known of its most memory
    found = simulation.run()
    assert found.evicted > 0
    assert found.lost < 600 * found.evicted
    assert found.most_memory <= MEMORY
    assert found.ends[0] > 5000 + 30 * 60 - STEP_S


def test_the_predictor_gives_the_busy_gpu_to_whom_it_hurts_less() -> None:
    model, profiles = read(SHIPPED.read_text()), Speeds.shipped().profiles
    matched = Matched((1, 1), MEMORY, model, dict(profiles))
    matched.online = {0: profiles[SERVER], 1: profiles["serve_decode"]}
    tasks = (training(), Offline(1.0, 0.0, 60.0, 0, "train_small"))
    found = dict(matched.start([0, 1], tasks))
    rows = [matched._row(task.program, task.memory) for task in tasks]  # noqa: SLF001
    got = sum(rows[who][gpu] for who, gpu in found.items())
    assert got == max(rows[0][0] + rows[1][1], rows[0][1] + rows[1][0])
    assert sorted(found) == sorted(found.values()) == [0, 1]


def test_figures_count_what_is_not_done_to_the_end() -> None:
    day, of = one(8 * GIB, 0.1, [training()])
    told = figures(play("exclusive", day, of, (1,)))
    assert (told["unfinished"], told["jct_s"]) == (1, 3 * SHORT * STEP_S)
    assert told["queued"] == 1
    assert told["utilisation"] == pytest.approx(0.1)
