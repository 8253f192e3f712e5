"""This release reads what each release since 0.2.0 has left behind (written.py)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from _gpulease import lib

from leased import __version__
from leased.record import lines
from leased.record.lines import Entry, Header
from leased.store.store import Store
from leased.wire import client_messages, header
from tests.compat import written
from tests.compat.written import DATA, SUMS, digest
from tests.support.message_types import OF_CLIENTS
from tests.wire.vectors import golden

RELEASES = sorted(folder.name for folder in DATA.iterdir())
release = pytest.mark.parametrize("release", RELEASES)


def expected(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((DATA / name / "expected.json").read_text())
    return read


def lacks(found: Any, wanted: Any, at: str = "") -> str | None:
    """Where something is not as it was; None: all of it is. What was added since is no matter."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        parts = [(found.get(name), one, f"{at}.{name}") for name, one in wanted.items()]
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        parts = [(a, b, f"{at}[{n}]") for n, (a, b) in enumerate(zip(found, wanted))]
    else:
        return None if found == wanted else f"{at}: {found!r:.200} was {wanted!r:.200}"
    return next((said for part in parts if (said := lacks(*part)) is not None), None)


def test_this_release_has_its_files() -> None:
    assert __version__ in RELEASES, "python -m tests.compat.written writes them"


@release
def test_nobody_has_changed_them(release: str) -> None:
    listed = dict(
        line.split("  ")[::-1] for line in (DATA / release / SUMS).read_text().splitlines()
    )
    assert listed == {
        file.name: digest(file) for file in (DATA / release).iterdir() if file.name != SUMS
    }


@release
def test_its_database_is_taken_over(release: str, tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    shutil.copyfile(DATA / release / "usage.db", path)
    store = Store(path)
    assert store.fault is None
    assert lacks(written.of_store(store), expected(release)["store"]) is None
    store.close()
    assert not list(tmp_path.glob("*damaged*"))


@release
def test_its_comments_in_sacct_are_read(release: str) -> None:
    for text, said in expected(release)["comments"].values():
        assert lacks(written.of_comment(text), said) is None


@release
def test_its_records_of_events_are_read(release: str) -> None:
    file = DATA / release / "events.record"
    with file.open("rb") as record:
        first, *rest = lines.read(record)
    assert isinstance(first, Header)
    assert first.release == release
    first.arbiter()
    assert len(rest) > written.EVENTS // 8
    assert all(isinstance(one, Entry) for one in rest)


@release
def test_its_messages_are_what_they_were(release: str) -> None:
    frozen = json.loads((DATA / release / "wire.json").read_text())
    versions = {header.version_of(bytes.fromhex(data)) for data in frozen.values()}
    if max(versions) < lib.GL_OLDEST_VERSION:
        pytest.skip("its version of the protocol is no longer served")
    assert lacks(golden(), frozen) is None
    for row in OF_CLIENTS:
        if row.name.lower() in frozen:
            client_messages.parse(bytes.fromhex(frozen[row.name.lower()]))
