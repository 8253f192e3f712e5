"""gpu_share.lua: which jobs are put off for gpu-lease-placer, and only while that runs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leased.placer import alive, marks
from leased.placer.service import understand
from tests.slurm_conf.test_gpu_share_lua import BEGIN, RULES, quoted
from tests.support import lua
from tests.support.lua import Lua

HOLD = 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    alive.write(tmp_path, int(time.time()), HOLD)
    return tmp_path


@pytest.fixture
def rules(folder: Path) -> Iterator[Lua]:
    found = lua.library()
    if found is None:
        pytest.skip("this machine has no library of Lua")
    place = f'local ALIVE = "{folder / alive.NAME}"'
    text = re.sub(r'(?m)^local ALIVE = ".*"$', place, RULES.read_text())
    assert place in text
    with Lua(found) as state:
        state.run(f"{BEGIN} {text} end)()")
        yield state


def put_off(rules: Lua, option: str, **fields: str | int) -> tuple[int, str]:
    """The job's begin time and AdminComment then; 0 and "": they are not set."""
    said = {"tres_per_node": "gres:shard:1"} | fields
    travels = quoted(f"_SLURM_SPANK_OPTION_gpu_share_gpu_share={option}")
    parts = [f"{k} = {v if isinstance(v, int) else quoted(v)}" for k, v in said.items()]
    parts += [f"spank_job_env = {{ [0] = {travels} }}", "spank_job_env_size = 1"]
    text = rules.run(
        f"local job = {{ {', '.join(parts)} }} M.put_off(job) "
        "return string.format('%d ', job.begin_time or 0) .. (job.admin_comment or '')"
    )
    begin, _, comment = (text or "").partition(" ")
    return int(begin), comment


def now(rules: Lua) -> int:
    """By Lua's clock, whose second begins a few milliseconds later than Python's."""
    return int(rules.run("return tostring(os.time())") or 0)


@pytest.mark.parametrize(
    "option",
    [
        *("affinity:a", "anti-affinity:a", "exclusion:a", "tq:5,affinity:x.y-z_"),
        *("chain:video", "sm:100%,chain:v"),
        *("space:mps", "space:time", "sm:30%", "tq:5,sm:0.5"),
        *("request:0.3", "request:30%,limit:50%", "lock:auto,exclusion:a,request:0"),
    ],
)
def test_a_job_with_labels_or_a_request_is_put_off(rules: Lua, option: str) -> None:
    before = now(rules)
    begin, comment = put_off(rules, option)
    assert before + HOLD <= begin <= now(rules) + HOLD
    assert marks.mark_of(comment) == (0, begin, option)
    assert understand(option) is not None


@pytest.mark.parametrize(
    "option", ["tq:5", "sm:100%", "limit:0.5", "request:0", "request:0%", "memory:swap"]
)
def test_other_options_are_not(rules: Lua, option: str) -> None:
    assert put_off(rules, option) == (0, "")
    assert understand(option) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"tres_per_node": "gres:gpu:1"},
        {"immediate": 1},
        {"deadline": 1_900_000_000},
        {"het_job_offset": 0},
        {"admin_comment": "x" * 1000},
    ],
    ids=str,
)
def test_jobs_that_the_placer_leaves_to_slurm_are_not(rules: Lua, fields: dict[str, str]) -> None:
    assert put_off(rules, "affinity:a", **fields) == (0, fields.get("admin_comment", ""))


def test_a_begin_time_and_a_comment_of_the_site_stay(rules: Lua) -> None:
    theirs = int(time.time()) + 5000
    begin, comment = put_off(rules, "affinity:a", begin_time=theirs, admin_comment="site")
    assert begin == theirs + HOLD
    assert comment.startswith("site [gpu-lease-placer ")
    assert marks.mark_of(comment) == (theirs, begin, "affinity:a")
    assert marks.without_mark(comment) == "site"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{past} 300\n",
        "{far} 300\n",
        "{soon} 99999\n",
        "{soon}",
        "{soon} 300",
        "-1 300\n",
        "x y\n",
        "{soon} 300\nmore",
    ],
)
def test_without_a_sign_of_life_nobody_is_put_off(rules: Lua, folder: Path, text: str) -> None:
    now = int(time.time())
    said = text.format(past=now - 60, far=now + 9999, soon=now + 30)
    (folder / alive.NAME).write_text(said)
    assert put_off(rules, "affinity:a") == (0, "")
    alive.remove(folder)
    assert put_off(rules, "affinity:a") == (0, "")
