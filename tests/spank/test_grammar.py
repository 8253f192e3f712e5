"""The one grammar of --gpu-share, as Python reaches it."""

from __future__ import annotations

import pytest
from _gpulease import ffi, lib
from hypothesis import assume, example, given
from hypothesis import strategies as st

from leased.base.errors import Refused
from leased.config.options import KEYS, Options, parse, parse_amount

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tq:60", Options(quantum_ns=60_000_000_000)),
        ("tq:1.5s", Options(quantum_ns=1_500_000_000)),
        ("tq:500ms,lock:off", Options(quantum_ns=500_000_000, lock="off")),
        ("tq:2m,mem:0.5", Options(quantum_ns=120_000_000_000, mem_fraction=0.5)),
        ("mem:50%", Options(mem_fraction=0.5)),
        ("mem:12.5%,tq:1", Options(quantum_ns=1_000_000_000, mem_fraction=0.125)),
        ("mem:20GiB,oversub:on", Options(mem_bytes=20 * GIB, oversub=True)),
        ("request:0.3,limit:60%", Options(request=0.3, limit=0.6)),
        ("affinity:a.B-9_z,exclusion:none", Options(affinity="a.B-9_z", exclusion="")),
        (f"anti-affinity:{'x' * 63}", Options(anti_affinity="x" * 63)),
        ("memory:swap,lock:auto", Options(memory="swap", lock="auto")),
        ("class:online,tq:1", Options(quantum_ns=1_000_000_000, job_class="online")),
        ("chain:video.1", Options(chain="video.1")),
        ("chain:none", Options(chain="")),
        ("class:none,request:0.3", Options(request=0.3, job_class="none")),
        ("space:mps,sm:30%", Options(space="mps", sm=0.3)),
        ("", Options()),
    ],
)
def test_values_are_parsed(text: str, expected: Options) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("tq", "tq:", ":1", "tq:1,", "tq:1,tq:2", "tq:-1", "tq:1e3", "tq:0", "tq:2d", " tq:1"),
        *("mem:0%", "mem:101%", "mem:50%%", "mem:%", "mem:50 %"),
        "mem:0.0000000000001",
        *("mem:0", "mem:1.1", "mem:1KB", "lock:ON", "speed:9", "memory:disk", "oversub:1"),
        *("x" * 300, "tq:1\0"),
    ],
)
def test_faults_are_one_sentence(text: str) -> None:
    with pytest.raises(Refused) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) > 20


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("tq", "tq has no value; write for example tq:60"),
        ("tq:", "tq has no value; write for example tq:60"),
        ("tq:1,mem:", "mem has no value; write for example mem:20GiB"),
        ("memory", "memory has no value; write for example memory:managed"),
        ("", "the value is empty; write for example tq:60,lock:auto"),
        ("tq:1,", "'' is not KEY:VALUE; write for example tq:60,lock:auto"),
        (":5", "':' is not KEY:VALUE; write for example tq:60,lock:auto"),
        ("job.sh", "'job.sh' is not KEY:VALUE; write for example tq:60,lock:auto"),
        ("mem:150%", "mem:150% is no fraction of the device; write one above 0 and up to 1, or"),
        (
            "request:2",
            "request:2 is no part of the GPU's time; write a fraction up to 1 (0.3, 30%)",
        ),
        ("limit:0", "limit:0 is too little to compute; write 0.01 or more"),
        ("request:0.5,limit:0.4", "request:0.5 is above limit:0.4; lower request, or raise limit"),
        ("limit:0.4,lock:off", "limit needs turns, and lock:off takes none; leave lock:off out"),
        (
            "class:batch",
            "class:batch is not known; write class:online, class:offline or class:none",
        ),
        (
            "class:offline,limit:0.4",
            "a job with a class has no share of the GPU's time; leave limit",
        ),
        ("sm:0", "sm:0 is too little to compute; write 0.01 or more"),
        ("sm:130%", "sm:130% is no part of the GPU's multiprocessors; write a fraction up to 1"),
        ("space:both", "space:both is not known; write space:time or space:mps"),
        ("sm:30%,space:time", "sm needs a GPU that MPS shares, and space:time wants none;"),
        ("class:online,lock:off", "a job with a class heeds the lock where memory does not fit;"),
        (
            "affinity:a/b",
            "affinity:a/b is no label; write letters, digits, '-', '_' and '.', at most 63, or",
        ),
        ("chain:a/b", "chain:a/b is no label; write letters"),
        (f"exclusion:{'x' * 64}", f"exclusion:{'x' * 40}... is no label; write"),
        ("anti_affinity:a", "unknown key 'anti_affinity'; the keys are tq, lock"),
        ("mem:2GB", "mem:2GB has an unknown unit; write K, M, G or T (20G or 20GiB)"),
    ],
)
def test_a_missing_part_is_named(text: str, sentence: str) -> None:
    status, _, error = raw_parse(text.encode())
    assert status == -1
    assert error.decode().startswith(sentence)


def raw_parse(data: bytes) -> tuple[int, bytes, bytes]:
    """(status, canonical text, error) of the C functions."""
    out = ffi.new("struct gl_options *")
    error = ffi.new("char[]", lib.GL_OPTIONS_ERROR)
    text = ffi.new("char[]", lib.GL_OPTIONS_TEXT)
    status = lib.gl_options_parse(data, out, error, lib.GL_OPTIONS_ERROR)
    if status == 0:
        assert lib.gl_options_format(out, text, lib.GL_OPTIONS_TEXT) == 0
    return status, ffi.string(text), ffi.string(error)


@given(st.binary(max_size=400))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    status, _, error = raw_parse(data)
    assert status in (0, -1)
    assert (status == 0) == (error == b"")
    assert all(32 <= byte < 127 for byte in error), "nothing of the terminal's in an error"


LABELS = st.from_regex("[A-Za-z0-9_.-]{1,63}", fullmatch=True)
DECIMALS = st.from_regex(r"0?\.[0-9]{1,14}", fullmatch=True)
VALUES = {
    "tq": st.integers(1, 86_400_000).map(lambda ms: f"{ms}ms")
    | st.builds(
        "{}{}s".format, st.integers(1, 86_399), st.from_regex(r"\.[0-9]{9}", fullmatch=True)
    ),
    "lock": st.sampled_from(["on", "off", "auto"]),
    "mem": st.integers(1, 1000).map(lambda n: f"{n / 1000:.3f}")
    | st.integers(1, 1 << 20).map(lambda m: f"{m}MiB")
    | DECIMALS.map(lambda text: f"{text}%")
    | st.builds(
        "{}{}{}".format,
        st.integers(1, 1023),
        st.from_regex(r"\.[0-9]{1,9}", fullmatch=True),
        st.sampled_from("MGT"),
    ),
    "oversub": st.sampled_from(["on", "off"]),
    "memory": st.sampled_from(["managed", "swap", "auto"]),
    "request": st.integers(0, 50).map(lambda n: f"{n}%"),
    "limit": st.integers(50, 100).map(lambda n: f"{n}%"),
    "affinity": LABELS,
    "anti-affinity": LABELS,
    "exclusion": LABELS,
    "class": st.sampled_from(["online", "offline", "none"]),
    "space": st.sampled_from(["time", "mps"]),
    "sm": st.integers(1, 100).map(lambda n: f"{n}%"),
    "chain": LABELS,
}
LONGEST = {
    "tq": "86399999.999999ms",
    "lock": "auto",
    "mem": "0.333333333333",
    "oversub": "off",
    "memory": "managed",
    "request": "0.333333",
    "limit": "0.333333",
    "affinity": "x" * 63,
    "anti-affinity": "x" * 63,
    "exclusion": "x" * 63,
    "class": "none",
    "space": "mps",
    "sm": "0.333333",
    "chain": "x" * 63,
}


def text_of(values: dict[str, str]) -> str:
    return ",".join(f"{key}:{value}" for key, value in values.items())


def go_together(values: dict[str, str]) -> bool:
    """A job that takes no turns has neither a share nor a class, and none has both. One without
    MPS has no part of the multiprocessors."""
    if values.get("space") == "time" and values.get("sm", "100%") != "100%":
        return False
    share, unclassed = values.keys() & {"request", "limit"}, values.get("class", "none") == "none"
    return (values.get("lock") != "off" or (not share and unclassed)) and (unclassed or not share)


def test_values_of_every_key_are_tried() -> None:
    assert list(VALUES) == list(LONGEST) == list(KEYS)


def test_the_longest_values_of_all_keys_fit_into_one_text() -> None:
    said = parse(text_of(LONGEST))
    assert parse(said.text()) == said


@example({"mem": "0.00000000000001"})
@example({"mem": "0.0000000001%"})
@example({"mem": "1.0000001T"})
@given(st.fixed_dictionaries({}, optional=VALUES).filter(bool).filter(go_together))
def test_formatted_options_mean_the_same(given_pairs: dict[str, str]) -> None:
    text = text_of(given_pairs)
    status, printed, error = raw_parse(text.encode())
    assume(status == 0 or b"is no fraction" not in error)  # so little that it would be none
    assert status == 0, error
    assert parse(printed.decode()) == parse(text)


def test_amounts_are_fractions_or_sizes() -> None:
    assert parse_amount("50%", 1000) == 500
    assert parse_amount("2GiB", 1000) == 2 * GIB
    for bad in ("101%", "x%", "-1%", "lots"):
        with pytest.raises(Refused):
            parse_amount(bad, 1000)
