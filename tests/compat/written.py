"""What a release leaves behind that later ones read, as files of a few kilobytes.

`python -m tests.compat.written` writes those of this release into tests/compat/data: anew as long
as CHANGELOG.md calls it unreleased, and never again from its date on, since nobody who has updated
can have it written anew. Those of 0.1.0 were written by its own code.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from _gpulease import ffi

from leased import __version__
from leased.config import config, options
from leased.core.policy import PolicyState
from leased.processes.identity import ProcessId
from leased.slurm import usage_record
from leased.store.records import TenantRecord
from leased.store.store import Store
from leased.usage.step_usage import StepUsage
from leased.usage.usage import Usage
from tests.conftest import ROOT
from tests.record.adversary_record import record
from tests.wire import vectors

DATA = Path(__file__).resolve().parent / "data"
SUMS = "SHA256SUMS"
UUIDS = ("GPU-01020304-0506-0708-090a-0b0c0d0e0f10", "GPU-11121314-1516-1718-191a-1b1c1d1e1f20")
EVENTS, SEED = 400, 3
Row = Mapping[str, Any]


def used(n: int) -> dict[str, Usage]:
    """Figures that differ from each other, of two GPUs."""
    names = list(asdict(Usage()))
    return {
        uuid: Usage(**{name: n + at + 1000 * gpu for at, name in enumerate(names)})
        for gpu, uuid in enumerate(UUIDS)
    }


def of_store(store: Store) -> dict[str, Any]:
    """All that the next daemon takes over, as JSON."""
    jobs = (7, 8, 9)
    told = {
        "epoch": store.epoch(),
        "settings": sorted([*key, value] for key, value in store.settings().items()),
        "stepds": sorted([*asdict(found).values(), job] for found, job in store.stepds().values()),
        "open": [asdict(one) for one in store.open_tenants()],
        "unsettled": [asdict(one) for one in store.unsettled()],
        "runs": [asdict(one) for job in jobs for one in store.runs(job)],
    }
    read: dict[str, Any] = json.loads(json.dumps(told))
    return read


def fill(store: Store) -> None:
    """Two runs of a job that have ended, one of them settled; a job that runs; a parked one."""
    store.put_setting("*", "lock", "on")
    store.put_setting(UUIDS[0], "quantum", "60")
    for job, opened in ((7, 1000.0), (7, 2000.0), (8, 3000.0), (9, 4000.0)):
        options = "tq:30,lock:auto,request:0.3,affinity:a"
        gang, totals = UUIDS[: 1 + job % 2], dict.fromkeys(UUIDS[: 1 + job % 2], 1 << 34)
        row = TenantRecord(job, 1000 + job, gang, options, "auto", {}, totals, opened)
        store.open_tenant(replace(row, name=f"6_{job}", start=job))
        if job == 7:
            store.save({7: used(3)}, 11, steps={7: {"batch": StepUsage(1.0, 2.0, used(2))}})
            store.close_tenant(7, used(int(opened)), {"0": StepUsage(1.5, 2.5, used(4))})
            store.settle(run.run for run in store.unsettled() if run.opened == 1000.0)
    store.add_stepd(ProcessId(4321, 99), 8)
    store.save(
        {8: used(5), 9: used(6)},
        17,
        remembered={8: PolicyState("fair", '{"0": {"d0": 5}}')},
        parked={9: "root"},
        steps={8: {"batch": StepUsage(5.0, 6.0, used(7))}},
    )


def comments() -> dict[str, str]:
    """What is in SystemComment: with steps, with others' text, and of more GPUs than fit."""
    steps = {"batch": StepUsage(5.0, 6.0, used(7)), "0": StepUsage(5.5, 6.5, used(8))}
    indices = dict(zip(UUIDS, (0, 3)))
    whole = usage_record.record(used(9), "auto", 10.0, 20.5, indices, steps=steps)
    cut = usage_record.record(used(9), "on", 10.0, 20.5, indices, job_class="online", room=300)
    return {"whole": whole, "cut": cut, "beside": usage_record.merged("of the site", whole)}


def of_comment(comment: str) -> dict[str, Any]:
    """What is read of it, as JSON."""
    found = usage_record.read(comment)
    assert found is not None
    read: dict[str, Any] = json.loads(json.dumps(asdict(found)))
    return read


def known_keys() -> dict[str, Any]:
    """What sites and users have written down: the keys of gpu-leased.toml, each with its default,
    and the options of --gpu-share, each with its words or an example."""
    said = []
    for row in options.rows():
        key, words = (ffi.string(text).decode() if text else "" for text in (row.name, row.words))
        said += [f"{key}:{word}" for word in words.split("|") if word] or [
            ffi.string(row.example).decode()
        ]
    return {"gpu-leased.toml": {one.path: one.default for one in config.KEYS}, "--gpu-share": said}


def record_of_events() -> bytes:
    """Some hundred events and what the arbiter did, of the last daemon of an adversary's run."""
    first, *rest = record(SEED, EVENTS).of[-1]
    header = json.loads(first) | {"release": __version__}
    return json.dumps(header, separators=(",", ":")).encode() + b"\n" + b"".join(rest)


def write(folder: Path) -> None:
    """All files of this release, and what they say."""
    folder.mkdir(parents=True)
    (folder / "events.record").write_bytes(record_of_events())
    (folder / "wire.json").write_text(json.dumps(vectors.golden(), indent=1) + "\n")
    (folder / "keys.json").write_text(json.dumps(known_keys(), indent=1) + "\n")
    said = comments()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "usage.db"
        store = Store(path)
        fill(store)
        store.close()
        shutil.copyfile(path, folder / "usage.db")
        db = sqlite3.connect(path)
        (schema,) = db.execute("PRAGMA user_version").fetchone()
        db.close()
        again = Store(path)
        stored = of_store(again)
        again.close()
    expected = {
        "schema": schema,
        "store": stored,
        "comments": {name: [text, of_comment(text)] for name, text in said.items()},
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    sums = [f"{digest(file)}  {file.name}\n" for file in sorted(folder.iterdir())]
    (folder / SUMS).write_text("".join(sums))


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def is_released() -> bool:
    return f"\n## {__version__} (unreleased)\n" not in (ROOT / "CHANGELOG.md").read_text()


if __name__ == "__main__":
    place = DATA / __version__
    if place.exists() and is_released():
        sys.exit(f"{place} is there: what a release has written does not change")
    shutil.rmtree(place, ignore_errors=True)
    write(place)
