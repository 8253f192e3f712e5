"""The protocol's golden bytes: what is in wire_vectors.json is what C and Python both say."""

from __future__ import annotations

import json
import subprocess

from _gpulease import ffi, lib

from leased.wire import wire
from tests.conftest import ROOT

VECTORS = ROOT / "tests" / "unit" / "wire_vectors.json"
PROGRAM = ROOT / "build" / "meson" / "tests" / "unit" / "wire_vectors"
UUID = "GPU-01020304-0506-0708-090a-0b0c0d0e0f10"
ZERO = "GPU-00000000-0000-0000-0000-000000000000"


def golden() -> dict[str, str]:
    read: dict[str, str] = json.loads(VECTORS.read_text())
    return read


def test_c_lays_them_out_so() -> None:
    said = subprocess.run([str(PROGRAM)], check=True, capture_output=True, text=True).stdout
    assert dict(line.split(" ") for line in said.splitlines()) == golden()


def test_python_reads_a_clients_messages_so() -> None:
    messages = {name: bytes.fromhex(text) for name, text in golden().items()}
    assert wire.parse(messages["hello"]) == wire.Hello(5, True, {UUID: wire.Bytes(3, 4, 23)})
    assert wire.parse(messages["memory"]) == wire.Memory({UUID: wire.Bytes(3, 4, 23)})
    assert wire.parse(messages["released"]) == wire.Released(6, True, 7, 8, 9, wants=True)
    assert wire.parse(messages["epoch"]) == wire.Stuck(19)
    assert wire.parse(messages["progress"]) == wire.Progress(20)
    assert wire.parse(messages["restored"]) == wire.Restored(24, 25, 26)


def test_every_message_of_a_client_is_known() -> None:
    types = ffi.typeof("enum gl_type").elements
    assert {kind for kind in types if kind < lib.GL_WELCOME} == set(wire.PARSERS)


def test_python_writes_the_daemons_messages_so() -> None:
    written = {
        "welcome": wire.welcome(wire.Gang(10, True, {ZERO: 11})),
        "grant": wire.grant(12, 13, True, {ZERO: 14}, idle_ns=21, in_flight_ns=22),
        "restore": wire.grant(27, 28, False, {ZERO: 29}, restore=True),
        "revoke": wire.revoke(15, 16),
        "contended": wire.contended(17, None, 18),
        "refused": wire.refused(3, "no"),
        "waits": wire.waits(3, "no room"),
    }
    assert {name: data.hex() for name, data in written.items()} == {
        name: text for name, text in golden().items() if name in written
    }


def test_a_reason_is_cut_between_characters() -> None:
    for text in ("x" * 300, "x" * 238 + "\u00e9\u00e9"):
        said = wire.waits(1, text)[24:].rstrip(b"\0").decode()
        assert text.startswith(said)
        assert len(said.encode()) in (238, 239)
