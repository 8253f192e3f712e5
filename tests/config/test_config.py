"""gpu-leased.toml: whatever stands in its place or in it is refused in one sentence."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leased.base.errors import Refused
from leased.config import config, options
from leased.config.config import KEYS, SECTIONS


def refusal(path: Path) -> str:
    with pytest.raises(Refused) as caught:
        config.load(path)
    assert "\n" not in caught.value.sentence()
    return caught.value.sentence()


def text(tmp_path: Path, toml: str) -> Path:
    path = tmp_path / "gpu-leased.toml"
    path.write_text(toml)
    return path


# -- numbers -------------------------------------------------------------------


@pytest.mark.parametrize(
    "number",
    ["nan", "+nan", "inf", "-inf", "-1", "1e-300", "1e300", "513", "1" + "0" * 400, "true", "'1'"],
)
def test_a_speed_that_no_link_has(tmp_path: Path, number: str) -> None:
    said = refusal(text(tmp_path, f"[device]\nlink_gib_s = {number}\n"))
    assert "device.link_gib_s = " in said
    assert len(said) < 300


@pytest.mark.parametrize("number", ["0", "0.0", "0.25", "51.6", "512"])
def test_a_speed_that_a_link_can_have(tmp_path: Path, number: str) -> None:
    assert config.load(text(tmp_path, f"[device]\nlink_gib_s = {number}\n")).device == (
        config.DeviceConfig(link_gib_s=float(number))
    )


@pytest.mark.parametrize(
    "amount",
    ["nan%", "inf%", "-1%", "1e1%", "1_0%", " 5 %", "٣%", "101%", "%", "1" * 400 + "%", "0%"],
)
def test_a_share_that_is_none(tmp_path: Path, amount: str) -> None:
    assert "device.memory" in refusal(text(tmp_path, f'[device]\nmemory = "{amount}"\n'))


@pytest.mark.parametrize("time", ["30,lock:off", "30:1", "", "nan", "-1", "1e9", "0x10", "١"])
def test_a_time_that_is_none(tmp_path: Path, time: str) -> None:
    assert "limits.drain" in refusal(text(tmp_path, f'[limits]\ndrain = "{time}"\n'))
    with pytest.raises(Refused):
        options.parse_time(time)


@pytest.mark.parametrize("value", ['"never"', '"-1s"', '""', "0", '"25h"'])
def test_a_time_or_0_that_is_none(tmp_path: Path, value: str) -> None:
    assert "placer.reserve_after" in refusal(text(tmp_path, f"[placer]\nreserve_after = {value}\n"))


def test_times_and_0() -> None:
    for value, wanted in (("0", 0), ("0s", 0), ("90s", 90 * 10**9)):
        read = config.parse(f'[placer]\nreserve_after = "{value}"\n'.encode())
        assert read.placer.reserve_after_ns == wanted


@pytest.mark.parametrize("amount", ["0.5,tq:9", "1GiB,lock:off", "nan", "1e3", ""])
def test_an_amount_that_is_none(tmp_path: Path, amount: str) -> None:
    assert "limits.swap_host" in refusal(text(tmp_path, f'[limits]\nswap_host = "{amount}"\n'))
    with pytest.raises(Refused):
        options.parse_amount(amount, 1 << 40)


# -- texts ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ('[daemon]\nruntime_dir = ""', "daemon.runtime_dir = '' is not an absolute path"),
        ('[daemon]\nstate_dir = "var"', "daemon.state_dir = 'var' is not an absolute path"),
        ('[daemon]\nrecord = "file"', "daemon.record = 'file' is not an absolute path"),
        ('[daemon]\nrecord_most = "1023KiB"', "daemon.record_most: 1023KiB is out of range"),
        ('[daemon]\nrecord_most = "99%"', "daemon.record_most = '99%' is too little"),
        ('[daemon]\npreload = "lib.so"', "daemon.preload = 'lib.so' is not an absolute path"),
        ('[daemon]\nstate_dir = "/a\\u0000b"', "daemon.state_dir has a control character"),
        ('[daemon]\npreload = "/a\\nb"', "daemon.preload has a control character"),
        ('[daemon]\npreload = "/opt/my lib.so"', "daemon.preload = '/opt/my lib.so' has a space"),
        ('[daemon]\npreload = "/opt/a:b.so"', "daemon.preload = '/opt/a:b.so' has a space or a"),
        (f'[daemon]\nruntime_dir = "/{"x" * 100}"', "daemon.runtime_dir is too long for a socket"),
        (f'[daemon]\nadmin_group = "{"x" * 5000}"', "daemon.admin_group is longer than 4096"),
        ('[strays]\nallow = ["²"]', "strays.allow"),
        ('[strays]\nallow = ["4294967296"]', "strays.allow"),
        ("[strays]\nallow = [1]", "strays.allow"),
        ('[device.gpu0]\nmemory = "5%"', "device.gpu0 is not a device"),
        ('[device.00]\nmemory = "5%"', "device.00 is not a device"),
        ('[device.memory]\nmemory = "5%"', "device.memory is not a device"),
    ],
)
def test_texts_that_cannot_be_used(tmp_path: Path, toml: str, words: str) -> None:
    assert words in refusal(text(tmp_path, toml))


# -- files ---------------------------------------------------------------------


def test_bytes_that_are_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "gpu-leased.toml"
    path.write_bytes(b'[daemon]\nadmin_group = "gr\xfcn"\n')
    assert re.search(r"line 2 is not UTF-8", refusal(path))


@pytest.mark.parametrize(
    "toml",
    ["a = " + "[" * 5000, "x = " + "9" * 5000, "a.b" * 3000, "\0", "\x1b[2J = 1", "x = 1\x85y"],
    ids=["nested", "long number", "long key", "NUL", "escape", "line"],
)
def test_files_that_no_parser_accepts(tmp_path: Path, toml: str) -> None:
    said = refusal(text(tmp_path, toml))
    assert said.isprintable()
    assert len(said) < 500


def test_something_else_in_place_of_the_file(tmp_path: Path) -> None:
    folder, fifo, loop, gone = (tmp_path / name for name in ("folder", "fifo", "loop", "gone"))
    folder.mkdir()
    os.mkfifo(fifo)
    loop.symlink_to(loop)
    assert "is a directory" in refusal(folder)
    assert "is not a regular file" in refusal(fifo)
    assert "is not a regular file" in refusal(Path("/dev/zero"))
    assert "cannot read" in refusal(loop)
    assert "cannot read" in refusal(gone)
    assert "cannot read" in refusal(Path(__file__) / "gpu-leased.toml")


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "gpu-leased.toml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert "is larger than" in refusal(path)


def test_only_a_missing_default_file_is_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gpu-leased.toml"
    monkeypatch.setattr(config, "DEFAULT_PATH", path)
    assert config.load(path) == config.Config()
    path.symlink_to(tmp_path / "nowhere")
    assert "cannot read" in refusal(path)


# -- anything ------------------------------------------------------------------

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["1s", "50%", "on", "auto", "/run/x", "tq:5"]),
    st.lists(st.text(max_size=5), max_size=3),
    st.dictionaries(st.sampled_from(["0", "memory", "x"]), st.integers(), max_size=2),
)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*SECTIONS, "demon"]),
        st.one_of(VALUES, st.dictionaries(st.sampled_from([key.name for key in KEYS]), VALUES)),
    )
)
@example({"strays": {"allow": ["\0"]}})
def test_any_content_is_taken_or_refused(raw: dict[str, object]) -> None:
    made, said = taken(lambda: config.from_dict(raw))
    assert said.isprintable()
    assert len(said) < 1000
    if made:
        assert 0 <= made.device.link_gib_s <= 512
        assert str(made.runtime_dir).isprintable()


def taken(read: Callable[[], config.Config]) -> tuple[config.Config | None, str]:
    """What is made of it, or what is said against it."""
    try:
        return read(), ""
    except Refused as fault:
        return None, fault.sentence()


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_are_taken_or_refused(data: bytes) -> None:
    assert taken(lambda: config.parse(data))[1].isprintable()
