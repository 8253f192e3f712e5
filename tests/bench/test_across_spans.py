"""What the benchmark counts as half of a job, or as two jobs on one GPU, and what it does not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.bench.across_ranks import GRANTED, RELEASED, REVOKED, ROW
from tests.bench.across_spans import NOT_YET, Down, Had, Log, Place, broken, read_all

JOBS = {2: ["a", "b"], 4: ["b", "c"], 6: ["b"], 7: ["b"]}  # 7 has the other GPU


def had(*spans: tuple[int, int]) -> list[Had]:
    return [Had(granted, 0, released) for granted, released in spans]


RUNS = {(2, "a"): had((0, 1), (100, 200)), (2, "b"): had((0, 1), (110, 190))}
HALF, OVERLAP = (1, 0), (0, 1)


@pytest.mark.parametrize(
    ("others", "down", "counted"),
    [
        ({(6, "b"): had((10, 100), (200, 300))}, {}, (0, 0)),
        ({(7, "b"): had((100, 200))}, {}, (0, 0)),
        ({(6, "b"): had((50, 101))}, {}, HALF),
        ({(6, "b"): had((195, 300))}, {}, HALF),
        ({(6, "b"): had((195, NOT_YET))}, {}, HALF),
        ({(4, "b"): had((195, 300)), (4, "c"): had((195, 300))}, {}, HALF),
        ({(6, "b"): had((50, 300))}, {}, (1, 1)),
        ({(6, "b"): had((120, 130))}, {}, (1, 1)),
        # The daemon of a was killed while the job ran there.
        ({(6, "b"): had((195, 300))}, {"a": [(150, 160)]}, (0, 0)),
        # It was before, and the next one has granted this.
        ({(6, "b"): had((195, 300))}, {"a": [(50, 90)]}, HALF),
        # The daemon of b was: nobody has its GPU before the job has left it.
        ({(6, "b"): had((185, 195))}, {"b": [(150, 160)]}, (1, 1)),
    ],
)
def test_what_is_counted(
    others: dict[Place, list[Had]], down: dict[str, list[Down]], counted: tuple[int, int]
) -> None:
    found = list(broken(JOBS, 2, {**RUNS, **others}, down))
    overlaps = sum(each.is_overlap() for each in found)
    assert (len(found) - overlaps, overlaps) == counted


def test_a_job_needs_no_gpu_where_no_step_has_begun() -> None:
    beside = {(6, "b"): had((50, 105))}
    assert not list(broken(JOBS, 2, {**RUNS, **beside, (2, "b"): had((110, 190))}, {}))


def test_a_log_is_read_on_and_a_lease_that_nobody_has_ended_goes_on(tmp_path: Path) -> None:
    log = Log(tmp_path / "2.a")
    assert log.had() == []
    rows = [(GRANTED, 5, 2), (REVOKED, 8, 1), (RELEASED, 9, 6)]
    rows += [(GRANTED, 20, 0), (GRANTED, 25, 3), (REVOKED, 26, 4)]
    data = b"".join(ROW.pack(*row) for row in rows)
    log.path.write_bytes(data[:-3])
    assert log.had() == [Had(5, 8, 9, 2, 1, 6), Had(20, 0, NOT_YET)]
    log.path.write_bytes(data + ROW.pack(RELEASED, 30, 0))
    assert log.had() == [Had(5, 8, 9, 2, 1, 6), Had(20, 26, 30, 0, 4)]
    assert (log.had()[0].told, log.had()[1].told_to_stop) == (3, 22)


def test_what_begins_while_the_logs_are_read_is_left_for_the_next_time(tmp_path: Path) -> None:
    """A log that was read before it may not have the release that this followed."""
    log, later = Log(tmp_path / "2.a"), time.monotonic_ns() + 10**15
    rows = [(GRANTED, 5), (REVOKED, 8), (RELEASED, 9), (GRANTED, later)]
    log.path.write_bytes(b"".join(ROW.pack(*row, 0) for row in rows))
    assert read_all({(2, "a"): log}) == {(2, "a"): [Had(5, 8, 9)]}
