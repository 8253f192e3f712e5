"""The protocol's golden bytes: what is in wire_vectors.json is what C and Python both say."""

from __future__ import annotations

from _gpulease import ffi, lib

from leased.node import message_handlers
from leased.wire import client_messages, daemon_messages, header
from leased.wire.device_bytes import DeviceBytes
from leased.wire.table import MESSAGES
from tests.support.message_types import OF_CLIENTS, OF_THE_DAEMON
from tests.wire.vectors import golden, printed

UUID = "GPU-01020304-0506-0708-090a-0b0c0d0e0f10"
ZERO = "GPU-00000000-0000-0000-0000-000000000000"


def test_c_lays_them_out_so() -> None:
    assert printed() == golden(), "for a new message run python -m tests.wire.vectors"


def test_every_message_has_a_vector() -> None:
    assert set(golden()) == {row.name.lower() for row in MESSAGES.values()}


def test_a_vector_says_what_its_row_says() -> None:
    for row in MESSAGES.values():
        data = bytes.fromhex(golden()[row.name.lower()])
        assert header.check_header(data) == row.number
        assert len(data) == row.size == ffi.sizeof(f"struct {row.body}")


def test_clients_and_the_daemon_have_numbers_of_their_own() -> None:
    assert all(0 < row.number < lib.GL_WELCOME for row in OF_CLIENTS)
    assert all(lib.GL_WELCOME <= row.number < 2**16 for row in OF_THE_DAEMON)
    assert lib.gl_message_of(lib.GL_GRANT).type == lib.GL_GRANT
    assert lib.gl_message_of(64) == ffi.NULL


def test_python_reads_every_message_of_a_client_so() -> None:
    assert {
        row.name.lower(): client_messages.parse(bytes.fromhex(golden()[row.name.lower()]))
        for row in OF_CLIENTS
    } == {
        "hello": client_messages.Hello(5, True, {UUID: DeviceBytes(3, 4, 23)}),
        "memory": client_messages.Memory({UUID: DeviceBytes(3, 4, 23)}),
        "request": client_messages.Request(),
        "released": client_messages.Released(6, 8, 9, wants=True),
        "stuck": client_messages.Stuck(19),
        "progress": client_messages.Progress(20, 21, 22, 23, 24),
        "restored": client_messages.Restored(24, 25, 26),
        "why": client_messages.Why(),
        "name": client_messages.Name(b"a name".ljust(16, b"\0")),
        "meet": client_messages.Meet(b"a name".ljust(16, b"\0"), 30, (31, 32)),
        "host_take": client_messages.HostTake(36, 37),
        "host_give": client_messages.HostGive(38),
        "suspends": client_messages.Suspends(),
        "signalled": client_messages.Signalled(),
        "parts": client_messages.Parts(),
        "ready": client_messages.Ready(),
        "rests": client_messages.Rests(),
        "works": client_messages.Works(),
        "stranded": client_messages.Stranded(),
        "claim": client_messages.Claim(42, "GPU-01020300-0000-0000-0000-000000000000", 43, 44),
        "details": client_messages.Details(
            ZERO, 47, 3, {"shared": 48, "unhosted": 49, "mapped": 50, "other": 51}
        ),
        "saves": client_messages.Saves(56),
        "channels": client_messages.Channels(lib.GL_CHANNELS_REFUSED, "no control", 55),
    }


def test_the_daemon_handles_every_message_of_a_client() -> None:
    """HELLO begins the connection, and comes to no handler."""
    golden_of = {bytes.fromhex(golden()[row.name.lower()]) for row in OF_CLIENTS}
    known = {type(client_messages.parse(data)) for data in golden_of}
    assert message_handlers.HANDLERS.keys() == known - {client_messages.Hello}


def test_python_writes_every_message_of_the_daemon_so() -> None:
    written = {
        "welcome": daemon_messages.welcome(daemon_messages.Gang(10, True, {ZERO: 11})),
        "refused": daemon_messages.refused(3, "no"),
        "grant": daemon_messages.grant(12, {ZERO: 14}, idle_ns=21, in_flight_ns=22),
        "revoke": daemon_messages.revoke(15, 16),
        "contended": daemon_messages.contended(17, None, 18),
        "others": daemon_messages.others({UUID: DeviceBytes(3, 4, 23)}),
        "step": daemon_messages.step(30),
        "resync": daemon_messages.RESYNC,
        "measure": daemon_messages.MEASURE,
        "watch": daemon_messages.WATCH,
        "evict": daemon_messages.evict({ZERO: 31}),
        "preload": daemon_messages.preload({ZERO: 32}),
        "expect": daemon_messages.expect({ZERO: 33}),
        "ahead": daemon_messages.ahead({ZERO: 39}),
        "restore": daemon_messages.grant(27, {ZERO: 29}, restore=True),
        "waits": daemon_messages.waits(3, "no room"),
        "named": daemon_messages.NAMED,
        "met": daemon_messages.met(lib.GL_MET_ASKED, 33, (34, 35)),
        "host": daemon_messages.host(lib.GL_HOST_FULL, 40, 41),
        "leave": daemon_messages.LEAVE,
        "moves": daemon_messages.MOVES,
        "carrier": daemon_messages.CARRIER,
        "save": daemon_messages.SAVE,
        "moved": daemon_messages.moved(
            "GPU-01020300-0000-0000-0000-000000000000", "GPU-04050600-0000-0000-0000-000000000000"
        ),
        "run": daemon_messages.run(
            "GPU-01020300-0000-0000-0000-000000000000", lib.GL_RUN_DUTY, 52, begins=53, period_ms=54
        ),
        "claimed": daemon_messages.claimed(lib.GL_CLAIM_REFUSED, 45, ZERO, 46, "full"),
    }
    of_the_daemon = [row.name.lower() for row in OF_THE_DAEMON]
    assert {name: data.hex() for name, data in written.items()} == {
        name: golden()[name] for name in of_the_daemon
    }


def test_a_reason_is_cut_between_characters() -> None:
    for text in ("x" * 300, "x" * 238 + "\u00e9\u00e9"):
        said = daemon_messages.waits(1, text)[24:].rstrip(b"\0").decode()
        assert text.startswith(said)
        assert len(said.encode()) in (238, 239)
