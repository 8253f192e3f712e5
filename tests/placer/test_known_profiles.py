"""When Slurm's accounting is asked for what jobs did before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leased.matching.profile import Kind, Profile
from leased.placer.known_profiles import AGAIN_S, KnownProfiles
from leased.placer.model import View
from tests.placer.scenes import T0, job, running
from tests.support.fake_sacct import fake, line

RUN = {"time_s": 100.0, "lease_s": 50.0, "measured_s": 50.0, "busy_s": 25.0, "peak_bytes": 7}
RECORD = {"v": 2, "lock": "auto", "from": 1.0, "to": 2.0, "gpus": {"GPU-1": RUN}}
COMMENT = f"gpu-lease: x {json.dumps(RECORD)}"
WAITS = View(T0, (job(1, "class:offline"),), ())
OTHERS = View(T0, (job(1, "class:online"), running(job(2, "class:offline"), "n1"), job(3)), ())


def asked(known: KnownProfiles, view: View) -> View:
    """What is known once sacct has answered."""
    known.added(view)
    if known.asking is not None:
        known.asking.join()
    return known.added(view)


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownProfiles:
    monkeypatch.setattr("leased.placer.known_profiles.is_possible", lambda: True)
    env = fake(tmp_path, f"echo x >> {tmp_path}/times")
    (tmp_path / "said").write_text(line(5, "train", COMMENT))
    return KnownProfiles(env)


def times(folder: Path) -> int:
    file = folder / "times"
    return len(file.read_text().split()) if file.exists() else 0


def test_profiles_are_there_once_offline_jobs_wait(known: KnownProfiles, tmp_path: Path) -> None:
    assert asked(known, OTHERS).profiles == {}
    assert times(tmp_path) == 0
    assert asked(known, WAITS).profiles == {Kind(5, "train"): Profile(0.25, 7)}
    asked(known, WAITS)
    assert times(tmp_path) == 1, "it is not asked again at once"
    known.due -= AGAIN_S
    asked(known, WAITS)
    assert times(tmp_path) == 2


def test_what_is_known_stays_where_sacct_fails(
    known: KnownProfiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = asked(known, WAITS).profiles
    fake(tmp_path, "exit 1")
    known.due -= AGAIN_S
    assert asked(known, WAITS).profiles == before != {}
    assert "by what is known already" in caplog.text


def test_without_scipy_nothing_is_asked(
    known: KnownProfiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leased.placer.known_profiles.is_possible", lambda: False)
    assert asked(known, WAITS).profiles == {}
    assert times(tmp_path) == 0
