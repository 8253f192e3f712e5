"""This release reads what each release has left behind (written.py), and changes no format that it
calls by the same version. Of 0.1.0 the database is kept and not read, and its interposers are not
served; docs/upgrade.md has what is promised."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from _gpulease import ffi, lib

from leased import __version__
from leased.admin import node_rules
from leased.base.errors import Refused
from leased.config import config, options
from leased.peers import greeting
from leased.placer import tickets_file
from leased.record import lines
from leased.record.lines import Entry, Header
from leased.saving import bytes_file, directory
from leased.slurm import usage_record
from leased.slurm.usage_record import json_of
from leased.store import registrations
from leased.store.schema import VERSION
from leased.store.store import Store
from leased.wire import client_messages, header
from tests.compat import written
from tests.compat.written import DATA, SUMS, digest
from tests.conftest import ROOT
from tests.connections.test_limits import Door
from tests.support.message_types import OF_CLIENTS
from tests.wire.vectors import golden

RELEASES = sorted(folder.name for folder in DATA.iterdir())
FIRST = "0.1.0"  # before the promises
release = pytest.mark.parametrize("release", RELEASES)
promised = pytest.mark.parametrize("release", [name for name in RELEASES if name != FIRST])


def expected(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((DATA / name / "expected.json").read_text())
    return read


def lacks(found: Any, wanted: Any, at: str = "", values: bool = True) -> str | None:
    """Where something is not as it was; None: all of it is. What was added since is no matter.
    values=False: what has another value of the same type is as it was."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        parts = [(found.get(name), one, f"{at}.{name}") for name, one in wanted.items()]
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        parts = [(a, b, f"{at}[{n}]") for n, (a, b) in enumerate(zip(found, wanted))]
    elif found == wanted or (not values and type(found) is type(wanted)):
        return None
    else:
        return f"{at}: {found!r:.200} was {wanted!r:.200}"
    return next((said for part in parts if (said := lacks(*part, values)) is not None), None)


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


def schema(path: Path) -> dict[str, str]:
    """By its name, what makes each table and index."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return dict(db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


def shapes(record: bytes) -> dict[str, set[str]]:
    """By their types, the fields that events of a record have."""
    events = [json.loads(line)["event"] for line in record.splitlines()[1:]]
    return {event["type"]: set(event) for event in events}


def test_what_this_release_writes_is_in_its_files(tmp_path: Path) -> None:
    ours = DATA / __version__
    Store(tmp_path / "usage.db").close()
    again = "python -m tests.compat.written, or a new version where this one is released"
    assert schema(tmp_path / "usage.db") == schema(ours / "usage.db"), again
    assert golden() == json.loads((ours / "wire.json").read_text()), again
    assert written.known_keys() == json.loads((ours / "keys.json").read_text()), again
    found = {name: text for name, (text, _) in expected(__version__)["comments"].items()}
    assert written.comments() == found, again
    assert shapes(written.record_of_events()) == shapes((ours / "events.record").read_bytes())


@release
def test_no_schema_changes_without_a_version(release: str, tmp_path: Path) -> None:
    Store(tmp_path / "usage.db").close()
    if expected(release)["schema"] == VERSION:
        assert schema(tmp_path / "usage.db") == schema(DATA / release / "usage.db")


@release
def test_what_reads_comments_finds_all_that_it_found(release: str) -> None:
    """A program of the site that reads what a release said in sacct reads this one's as well."""
    before = json_of(expected(release)["comments"]["whole"][0])
    now = json_of(written.comments()["whole"])
    if before["v"] == now["v"]:
        assert lacks(now, before, values=False) is None


def test_the_database_of_0_1_is_kept_whole_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "usage.db"
    shutil.copyfile(DATA / FIRST / "usage.db", path)
    before = path.read_bytes()
    store = Store(path)
    assert (store.fault, store.open_tenants(), store.unsettled()) == (None, [], [])
    store.close()
    (kept,) = tmp_path.glob("usage.db.damaged-*")
    assert kept.read_bytes() == before
    assert "of gpu-leased 0.1: its schema is 1006" in caplog.text


@promised
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
def test_what_sites_and_users_have_written_is_taken(release: str) -> None:
    """Each key by itself, and each option; what has gone is named on the page of upgrades."""
    page = (ROOT / "docs" / "upgrade.md").read_text()
    said = json.loads((DATA / release / "keys.json").read_text())
    for path, default in said["gpu-leased.toml"].items():
        section, _, name = path.partition(".")
        if path in {key.path for key in config.KEYS}:
            config.from_dict({section: {name: default}})
        else:
            with pytest.raises(Refused, match=name):
                config.from_dict({section: {name: default}})
            assert f"`{path}` is gone" in page
    for option in said["--gpu-share"]:
        options.parse(option)


def test_an_interposer_of_0_1_is_refused_in_words_that_it_reads() -> None:
    """Its grants have another length than ours, so it would wait for one for ever."""
    hello = bytes.fromhex(json.loads((DATA / FIRST / "wire.json").read_text())["hello"])
    door = Door()
    sock = door.connect()
    door.say(sock, hello)
    (answer,) = sock.outbox
    assert header.version_of(answer) == header.version_of(hello)
    reply = ffi.from_buffer("struct gl_refused *", answer)
    assert (reply.header.type, reply.code) == (lib.GL_REFUSED, lib.GL_REFUSED_VERSION)
    assert b"submit the job again" in ffi.string(reply.reason)


@promised
def test_its_messages_are_what_they_were(release: str) -> None:
    frozen = json.loads((DATA / release / "wire.json").read_text())
    versions = {header.version_of(bytes.fromhex(data)) for data in frozen.values()}
    if max(versions) < lib.GL_OLDEST_VERSION:
        pytest.skip("its version of the protocol is no longer served")
    assert lacks(golden(), frozen) is None
    for row in OF_CLIENTS:
        if row.name.lower() in frozen:
            client_messages.parse(bytes.fromhex(frozen[row.name.lower()]))


# By the file in which it stands.
VERSIONS = {
    "leased/store/schema.py": VERSION,
    "shim/base/wire_header.h": lib.GL_VERSION,
    "leased/peers/greeting.py": greeting.RELEASE,
    "leased/slurm/usage_record.py": usage_record.VERSION,
    "leased/record/lines.py": lines.VERSION,
    "leased/admin/node_rules.py": node_rules.VERSION,
    "leased/placer/tickets_file.py": tickets_file.VERSION,
    "leased/store/registrations.py": registrations.VERSION,
    "leased/saving/directory.py": directory.FORMAT,
    "leased/saving/bytes_file.py": bytes_file.FORMAT,
    "chain/table.h": int((ROOT / "chain/table.h").read_text().partition('MARK "GPLCHN')[2][0]),
}


def test_the_page_of_upgrades_has_all_versions_as_they_are() -> None:
    page = (ROOT / "docs" / "upgrade.md").read_text()
    assert f"| version in {__version__} |" in page
    found: dict[str, int] = {}
    for line in page.partition("| version in ")[2].splitlines()[2:]:
        cells = line.split(" | ")
        if len(cells) == 4 and (version := re.search(r"\d+", cells[1])):
            found |= dict.fromkeys(re.findall(r"`([^`]+)`", cells[2]), int(version[0]))
    assert found == VERSIONS
