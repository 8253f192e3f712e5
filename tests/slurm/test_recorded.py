"""What a failed test shows of the daemons' records."""

from __future__ import annotations

from pathlib import Path

from tests.slurm.recorded import Records


def test_the_record_around_a_moment(tmp_path: Path) -> None:
    records = Records(tmp_path / "record")
    for times in ((90, 99), (101, 102, 120)):
        records.keep()
        lines = ['{"now":100}', *(f'{{"now":{time}}}' for time in times), '{"why":"it ended"}']
        records.path.write_text("\n".join(lines) + "\n")
    assert list(records.around(100, 2)) == [
        'record-of-daemon-0: {"now":99}',
        'record: {"now":101}',
        'record: {"now":102}',
    ]
