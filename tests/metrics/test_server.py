"""The endpoint over HTTP: addresses that are taken, and clients that are slow, many or hostile."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import make_wsgi_app
from prometheus_client.openmetrics import parser

from leased.base.errors import Refused
from leased.cli.checks.metrics import UnixConnection
from leased.config import listen_address
from leased.config.listen_address import ListenAddress
from leased.metrics import server
from leased.metrics.server import MOST_OPEN, Server
from tests.metrics.statuses import Scraper, status, tenant

WAIT_S = 60.0
OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


def connected(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(WAIT_S)
    made.connect(str(path))
    return made


def read_all(client: socket.socket) -> bytes:
    """What comes until the other end closes; it may have done so with words of ours unread."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65_536):
            said += part
    return said


def scrape(path: Path, method: str = "GET", target: str = "/metrics") -> tuple[int, str]:
    with contextlib.closing(UnixConnection(path, WAIT_S)) as connection:
        connection.request(method, target, headers=OPENMETRICS)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@contextlib.contextmanager
def serving(address: ListenAddress) -> Iterator[Server]:
    made = Server(address, make_wsgi_app(Scraper(lambda: status([tenant(7)])).registry))
    thread = threading.Thread(target=made.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        thread.join(WAIT_S)
        made.server_close()


@pytest.fixture(autouse=True)
def _any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, nothing lasts too long."""
    monkeypatch.setattr(server, "LONGEST_S", 600.0)


@pytest.fixture
def path(short_dir: Path) -> Iterator[Path]:
    with serving(ListenAddress(path=short_dir / "m.sock")):
        yield short_dir / "m.sock"


def test_a_scrape_is_openmetrics(path: Path) -> None:
    code, text = scrape(path)
    assert code == 200
    names = {family.name for family in parser.text_string_to_metric_families(text)}
    assert "gpu_lease_held_seconds" in names


def test_loopback_over_tcp() -> None:
    with serving(ListenAddress("127.0.0.1", 0)) as made:  # the kernel chooses a port
        port = made.socket.getsockname()[1]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            assert b"gpu_lease_up 1.0" in connection.getresponse().read()


# -- addresses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [("127.0.0.1:9747", "127.0.0.1:9747"), ("[::1]:80", "[::1]:80"), ("/run/x", "/run/x")],
)
def test_addresses_are_understood(text: str, shown: str) -> None:
    assert str(listen_address.parse(text, "metrics.listen")) == shown
    assert listen_address.parse("", "metrics.listen") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0.0.0.0:9747", "is not on loopback"),
        ("[::]:9747", "is not on loopback"),
        ("10.0.0.1:9747", "is not on loopback"),
        ("localhost:9747", "is not an address with a port"),
        ("127.0.0.1", "is not an address with a port"),
        ("127.0.0.1:0", "is not an address with a port"),
        ("127.0.0.1:65536", "is not an address with a port"),
        ("127.0.0.1:９", "is not an address with a port"),
        ("run/metrics.sock", "is not an address with a port"),
        ("/" + "x" * 107, "is too long for a socket"),
    ],
)
def test_an_address_that_is_none_is_refused(text: str, words: str) -> None:
    with pytest.raises(Refused, match=words) as caught:
        listen_address.parse(text, "metrics.listen")
    assert caught.value.sentence().startswith("metrics.listen")
    assert caught.value.hint


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(Refused, match=rf"127.0.0.1:{port} cannot be had: Address already"):
            Server(ListenAddress("127.0.0.1", port), make_wsgi_app())


def test_a_socket_that_was_left_over_is_replaced(short_dir: Path) -> None:
    path = short_dir / "m.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as before:
        before.bind(str(path))
    with serving(ListenAddress(path=path)):
        assert scrape(path)[0] == 200
    assert not path.exists()


def test_a_socket_that_is_in_use_and_a_file_stay(path: Path, short_dir: Path) -> None:
    with pytest.raises(Refused, match="somebody listens at"):
        Server(ListenAddress(path=path), make_wsgi_app())
    (short_dir / "file").write_text("kept")
    with pytest.raises(Refused, match="is not a socket"):
        Server(ListenAddress(path=short_dir / "file"), make_wsgi_app())
    assert (short_dir / "file").read_text() == "kept"
    assert scrape(path)[0] == 200


# -- clients -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET",
        b"\0\xff\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /metrics?name[]=%ff&name[]=x HTTP/1.1\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text; version=\xff\r\n\r\n",
    ],
    ids=lambda said: ascii(said[:30]),
)
def test_nonsense_hurts_nobody_else(path: Path, said: bytes) -> None:
    with connected(path) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(said)
            client.shutdown(socket.SHUT_WR)
        read_all(client)
    assert scrape(path)[0] == 200


def test_clients_that_say_nothing_do_not_keep_others_out(path: Path) -> None:
    with contextlib.ExitStack() as open_ones:
        silent = [open_ones.enter_context(connected(path)) for _ in range(MOST_OPEN)]
        assert scrape(path)[0] == 200
        assert silent[0].recv(1) == b"", "the oldest had to go"


def test_a_client_that_takes_too_long_is_ended(
    monkeypatch: pytest.MonkeyPatch, short_dir: Path
) -> None:
    monkeypatch.setattr(server, "LONGEST_S", 0.0)
    with serving(ListenAddress(path=short_dir / "m.sock")), connected(short_dir / "m.sock") as one:
        with contextlib.suppress(ConnectionError):
            one.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert read_all(one) == b"", "it ends, though the request does not"
