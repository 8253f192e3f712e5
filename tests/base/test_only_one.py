"""Two programs of a kind do not use one directory."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from leased.base.errors import Refused
from leased.base.only_one import only_one


@pytest.mark.parametrize("shared", ["state", "run"])
def test_a_second_one_is_refused_until_the_first_has_ended(tmp_path: Path, shared: str) -> None:
    first = {"state": tmp_path / "state", "run": tmp_path / "run"}
    second = {"state": tmp_path / "state2", "run": tmp_path / "run2", shared: first[shared]}
    for folder in {*first.values(), *second.values()}:
        folder.mkdir()
    said = f"another gpu-leased uses {first[shared]}"
    with only_one("gpu-leased", *first.values()):
        with pytest.raises(Refused, match=f"^{said}$"), only_one("gpu-leased", *second.values()):
            pass
        with only_one("gpu-lease-placer", *first.values()):
            pass
    with only_one("gpu-leased", *second.values()):
        pass


def test_one_directory_may_be_named_twice_and_no_user_can_take_the_lock(tmp_path: Path) -> None:
    with only_one("gpu-leased", tmp_path, tmp_path / "." / ""):
        (lock,) = tmp_path.iterdir()
        assert lock.stat().st_mode & 0o777 == 0o600


def test_who_was_killed_may_leave_the_lock_to_a_child_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as killed:
        killed.enter_context(only_one("gpu-leased", tmp_path))
        waits: list[float] = []

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            killed.close()

        monkeypatch.setattr("leased.base.only_one.time.sleep", sleep)
        with only_one("gpu-leased", tmp_path):
            assert len(waits) == 1
