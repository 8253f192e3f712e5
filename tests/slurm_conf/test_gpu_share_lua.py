"""gpu_share.lua: which jobs slurmctld refuses, and that it takes what the one grammar takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from _gpulease import ffi, lib
from hypothesis import example, given
from hypothesis import strategies as st

from leased.config import options
from tests.conftest import ROOT
from tests.support import lua
from tests.support.lua import Lua

RULES = ROOT / "slurm-conf" / "gpu_share.lua"
BEGIN = "slurm = { NO_VAL = 4294967294 } M = (function() "


@pytest.fixture(scope="module")
def rules() -> Iterator[Lua]:
    found = lua.library()
    if found is None:
        pytest.skip("this machine has no library of Lua")
    with Lua(found) as state:
        state.run(f"{BEGIN} {RULES.read_text()} end)()")
        yield state


def quoted(text: str | bytes) -> str:
    data = text if isinstance(text, bytes) else text.encode()
    return '"' + "".join(f"\\{byte:03}" for byte in data) + '"'


def fault(rules: Lua, **job: str | int) -> str | None:
    """What is said of a job. option, env: of --gpu-share and GPU_SHARE."""
    fields = {key: value for key, value in job.items() if key not in ("option", "env")}
    parts = [f"{k} = {v if isinstance(v, int) else quoted(v)}" for k, v in fields.items()]
    if "option" in job:
        travels = f"_SLURM_SPANK_OPTION_gpu_share_gpu_share={job['option']}"
        parts.append(f'spank_job_env = {{ [0] = "OTHER=1", [1] = {quoted(travels)} }}')
        parts.append("spank_job_env_size = 2")
    if "env" in job:
        parts.append(f"script = '', environment = {{ GPU_SHARE = {quoted(str(job['env']))} }}")
    return rules.run(f"return M.fault_of({{ {', '.join(parts)} }})")


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"option": "tq:5"}, "--gpu-share without a shard; add --gres=shard:1"),
        ({"option": "tq:5", "tres_per_node": "gres/shard:0"}, "without a shard; add"),
        ({"option": "tq:5", "tres_per_node": "gres/shard:a:00"}, "without a shard; add"),
        ({"option": "tq:5", "tres_per_node": "gres:gres/gpu:1"}, "instead of whole GPUs"),
        ({"option": "tq:5", "tres_per_node": "gres/gpu:1"}, "instead of whole GPUs"),
        ({"option": "tq:5", "tres_per_job": "gres/gpu:a100:1"}, "instead of whole GPUs"),
        ({"tres_per_node": "gres/shard:1", "min_nodes": 2}, "ask for one node"),
        ({"tres_per_node": "gres/shard:1,gres/gpu:1"}, "whole GPUs or shards, not both"),
        ({"tres_per_node": "gres/shard:1", "tres_per_job": "gpu:2"}, "not both"),
        ({"tres_per_node": "gres:shard:1", "option": "tq:5", "shared": 0}, "leave out --exclusive"),
        ({"tres_per_task": "gres/shard=1", "option": "tq:soon"}, "'tq:soon' is no value"),
        ({"option": "lock:on,tq:soon"}, "'tq:soon' is no value of --gpu-share; write for example"),
        ({"option": "tq:5,tq:6"}, "'tq:5,tq:6': tq is given twice; give each key once"),
        (
            {"option": "request:0.5,limit:30%"},
            "'request:0.5,limit:30%': request:0.5 is above limit:0.3; lower request, or",
        ),
        (
            {"tres_per_node": "gres/shard:1", "env": "class:online,limit:0.5"},
            "of the environment variable GPU_SHARE: a job with a class has no share of the GPU's",
        ),
        (
            {"tres_per_node": "gres/shard:1", "env": "lock:maybe"},
            "'lock:maybe' of the environment variable GPU_SHARE is no value of --gpu-share",
        ),
    ],
)
def test_jobs_that_cannot_share_are_refused(
    rules: Lua, job: dict[str, str | int], words: str
) -> None:
    assert words in (fault(rules, **job) or "nothing")


@pytest.mark.parametrize(
    "job",
    [
        {},
        {"tres_per_node": "gres/gpu:1", "min_nodes": 4},
        {"tres_per_node": "gres/gpu:1", "env": "no value"},
        {"tres_per_node": "gres/shard:2", "min_nodes": 1, "option": "tq:5,lock:on"},
        {"tres_per_node": "gres/shard:1", "min_nodes": 4294967294},
        {"tres_per_node": "gres/shard", "shared": 0},
        {"tres_per_node": "gres/shard:1", "env": ""},
        {"tres_per_node": "gres/shard:1", "env": "mem:50%"},
        {"tres_per_node": "gres/shard:1", "env": "no value", "option": "tq:5"},
        {"tres_per_node": "gres/gpu:0,gres/shard:1"},
        {"tres_per_node": "gres/gpu:a:0,gres/shard:1"},
        {"tres_per_node": "gres:gres/shard:1", "option": "tq:5"},
        {"tres_per_node": "gres/shards_of_another_kind:1,gres/gpu:1"},
        {"option": "tq:5", "het_job_offset": 1},
    ],
)
def test_other_jobs_are_left_alone(rules: Lua, job: dict[str, str | int]) -> None:
    assert fault(rules, **job) is None


def test_jobs_on_several_nodes_are_left_to_a_site_where_they_can_share(rules: Lua) -> None:
    rules.run("M.several_nodes = true")
    try:
        assert fault(rules, tres_per_node="gres/shard:1", min_nodes=2) is None
        words = fault(rules, tres_per_node="gres/shard:1,gres/gpu:1", min_nodes=2)
        assert "not both" in (words or "nothing")
    finally:
        rules.run("M.several_nodes = false")


def test_a_value_is_repeated_without_harm(rules: Lua) -> None:
    said = fault(rules, option="\x1b[31m" + "x" * 200) or ""
    assert said.startswith(f"'?[31m{'x' * 35}...' is no value")


def test_its_keys_are_those_of_the_option(rules: Lua) -> None:
    names = rules.run(
        "local n = {} for k in pairs(M.keys) do n[#n + 1] = k end table.sort(n) "
        "return table.concat(n, ' ')"
    )
    assert names == " ".join(sorted(options.KEYS))


PIECES = st.sampled_from(
    [
        *("tq", "lock", "mem", "oversub", "memory", "spin", ":", ",", ".", "%", "0", "1", "5"),
        *("30", "1440", "1025", "s", "ms", "m", "K", "M", "G", "T", "iB", "B", "i", "on", "off"),
        *("auto", "managed", "swap", "tq:60", "lock:auto", "mem:50%", "mem:20GiB", " ", "-1", "e3"),
        *("affinity:", "anti-affinity:", "exclusion", "-", "_", "é", "none"),
    ]
)


@given(text=st.lists(PIECES, max_size=7).map("".join) | st.text(st.characters(max_codepoint=127)))
@example(text="tq:60,lock:auto")
@example(text="tq:60,")
@example(text="tq:1440m,mem:1024T,oversub:on,memory:swap")
@example(text="tq:86401")
@example(text="tq:0.0009s")
@example(text="mem:1024KiB")
@example(text="mem:1023KiB")
@example(text="mem:20GB")
@example(text="mem:20Gi")
@example(text="mem:.5")
@example(text="mem:.")
@example(text="mem:0")
@example(text="mem:0.0000000000001")
@example(text="mem:0.0000000000006")
@example(text="tq:1234567890123456ms")
@example(text="tq:60,tq:60")
@example(text="request:0.3,limit:60%")
@example(text="request:0.3,limit:0.2")
@example(text="limit:0.009")
@example(text="limit:1.1")
@example(text="request:0.3,lock:off")
@example(text="request:0,limit:1,lock:off")
@example(text="affinity:a.B-9_z,anti-affinity:none,exclusion:x")
@example(text="affinity:a b")
@example(text="exclusion:" + "x" * 63)
@example(text="exclusion:" + "x" * 64)
@example(text="tq:1" + " " * 600)
def test_it_takes_what_the_one_grammar_takes(rules: Lua, text: str) -> None:
    if "\0" in text:  # no environment has it
        return
    out, error = ffi.new("struct gl_options *"), ffi.new("char[]", lib.GL_OPTIONS_ERROR)
    takes = lib.gl_options_parse(text.encode(), out, error, lib.GL_OPTIONS_ERROR) == 0
    assert rules.run(f"return tostring(M.is_value({quoted(text)}))") == str(takes).lower()
