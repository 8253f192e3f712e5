"""Daemons of two nodes, proven by a real munged: what arrives, and who is turned away."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased.across.messages import LAST_STAMP, Message, Order, Phase, Report, State
from leased.peers import greeting, link, messages, sealed, server, tls
from leased.peers.greeting import Stranger, Terms
from leased.peers.munge import Munge
from leased.peers.peers import Peers
from leased.peers.tls import Tls
from tests.slurm.processes import wait_until
from tests.support.nodes import munged
from tests.support.ports import free_port
from tests.support.work_dir import work_dir

TERMS = Terms(20)
ORDER = Order("7", 3, 2, Phase.HOLD, stamp=5)


@pytest.fixture(scope="module")
def munge() -> Iterator[Munge]:
    place = work_dir()
    with munged(place) as socket:
        yield Munge(str(socket))
    shutil.rmtree(place, ignore_errors=True)


class Node:
    """What it has heard: from whom, and what."""

    def __init__(
        self,
        name: str,
        munge: Munge,
        ports: dict[str, int],
        terms: Terms = TERMS,
        tls: Tls | None = None,
    ):
        self.heard: asyncio.Queue[tuple[str, Message]] = asyncio.Queue()
        self.name, self.port = name, ports[name]

        async def address(node: str) -> link.Address:
            return "127.0.0.1", ports[node]

        def received(node: str, message: Message) -> None:
            self.heard.put_nowait((node, message))

        self.peers = Peers(link.Own(name, terms, munge, tls), address, received)

    async def begin(self) -> None:
        await self.peers.listen(self.port, "127.0.0.1")

    async def next(self) -> tuple[str, Message]:
        return await asyncio.wait_for(self.heard.get(), 30)


@asynccontextmanager
async def pair(
    munge: Munge, terms: Terms = TERMS, secured: tuple[Tls | None, Tls | None] = (None, None)
) -> AsyncIterator[tuple[Node, Node]]:
    """Both listen. terms: of the second one. secured: of both."""
    ports = {"a": free_port(), "b": free_port()}
    nodes = Node("a", munge, ports, tls=secured[0]), Node("b", munge, ports, terms, secured[1])
    for node in nodes:
        await node.begin()
    try:
        yield nodes
    finally:
        for node in nodes:
            await node.peers.close()


async def until(what: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, "what is waited for", what)


async def test_what_is_said_arrives_in_its_order_and_from_whom_is_proven(munge: Munge) -> None:
    async with pair(munge) as (a, b):
        for epoch in range(100):
            a.peers.send("b", ORDER._replace(job=str(epoch), epoch=epoch))
        b.peers.send("a", Report("7", 1, 1, State.HELD, vote=9, wants=True))
        found = [await b.next() for _ in range(100)]
        assert found == [("a", ORDER._replace(job=str(epoch), epoch=epoch)) for epoch in range(100)]
        assert await a.next() == ("b", Report("7", 1, 1, State.HELD, vote=9, wants=True))
        assert a.peers.faults(["b"]) == {}


async def test_of_what_waits_for_a_node_the_last_of_each_job_is_said(munge: Munge) -> None:
    """A node that cannot be reached is tried again, and why not is known."""
    ports = {"a": free_port(), "b": free_port()}
    a, b = Node("a", munge, ports), Node("b", munge, ports)
    for epoch in range(3):
        a.peers.send("b", ORDER._replace(epoch=epoch))
        a.peers.send("b", ORDER._replace(job="8", epoch=epoch))
        a.peers.send("b", ORDER._replace(job="9", epoch=epoch))
    a.peers.forget("9")
    await until(lambda: "Connect call failed" in a.peers.faults(["b"]).get("b", ""))
    await b.begin()
    assert await b.next() == ("a", ORDER._replace(epoch=2))
    assert await b.next() == ("a", ORDER._replace(job="8", epoch=2))
    assert a.peers.faults(["b"]) == {}
    await b.peers.close()
    a.peers.send("b", ORDER)
    await until(lambda: "b" in a.peers.faults(["b"]))
    again = Node("b", munge, ports)
    await again.begin()
    a.peers.send("b", ORDER)
    assert await again.next() == ("a", ORDER)
    await again.peers.close()
    await a.peers.close()


async def test_a_node_of_which_no_job_is_left_is_called_no_more(munge: Munge) -> None:
    a = Node("a", munge, {"a": free_port(), "b": free_port()})
    a.peers.send("b", ORDER)
    await until(lambda: "b" in a.peers.faults(["b"]))
    a.peers.forget("7")
    task = a.peers.links["b"].task
    assert task is not None
    await asyncio.wait_for(task, 30)


async def test_a_node_that_does_not_come_back_is_not_called_for_ever(
    munge: Munge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the first node of a job that is not here, of which nobody says that it is over."""
    monkeypatch.setattr(link, "IDLE_S", 0.0)
    a = Node("a", munge, {"a": free_port(), "b": free_port()})
    a.peers.send("b", ORDER)
    task = a.peers.links["b"].task
    assert task is not None
    await asyncio.wait_for(task, 30)
    assert "b" in a.peers.faults(["b"])
    a.peers.send("b", ORDER)
    assert a.peers.links["b"].task is not task  # who has something to say tries again
    await a.peers.close()


@pytest.mark.parametrize("moment", range(8))
async def test_a_daemon_ends_at_whatever_moment_another_one_has_ended(
    munge: Munge, moment: int
) -> None:
    """moment: so many turns of the loop after the other one could not be reached."""
    unreachable: asyncio.Future[link.Address] = asyncio.get_running_loop().create_future()

    async def address(_: str) -> link.Address:
        return await unreachable

    peers = Peers(link.Own("a", TERMS, munge), address, lambda *_: None)
    peers.send("b", ORDER)
    for _ in range(5):
        await asyncio.sleep(0)
    unreachable.set_exception(OSError("it has ended"))
    for _ in range(moment):
        await asyncio.sleep(0)
    closing = asyncio.ensure_future(peers.close())
    done, _ = await asyncio.wait({closing}, timeout=30)
    assert done, "it goes on"


async def test_nodes_whose_jobs_may_take_other_times_to_stop_do_not_speak(munge: Munge) -> None:
    async with pair(munge, Terms(30_000_000_000)) as (a, b):
        a.peers.send("b", ORDER)
        await until(lambda: "limits.drain" in a.peers.faults(["b"]).get("b", ""))
        assert b.heard.empty()


# -- who is no daemon of the cluster ----------------------------------------------------

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter, Munge], Awaitable[None]]


async def nothing(*_: object) -> None:
    """It says nothing, for too long."""


async def rubbish(_: object, writer: asyncio.StreamWriter, __: Munge) -> None:
    writer.write(sealed.framed(b"GET / HTTP/1.1"))


async def too_long(_: object, writer: asyncio.StreamWriter, __: Munge) -> None:
    writer.write((1 << 31).to_bytes(4, "big"))


async def for_another_node(_: object, writer: asyncio.StreamWriter, munge: Munge) -> None:
    first = greeting.begin("a", "c", TERMS)
    writer.write(sealed.framed(greeting.to_credential(munge, first)))


async def says_to_be_that_node(_: object, writer: asyncio.StreamWriter, munge: Munge) -> None:
    first = greeting.begin("b", "b", TERMS)
    writer.write(sealed.framed(greeting.to_credential(munge, first)))


async def another_program(_: object, writer: asyncio.StreamWriter, munge: Munge) -> None:
    writer.write(sealed.framed(munge.encode(b"[1, 2]")))


async def without_the_secret(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, munge: Munge
) -> None:
    """It repeats what it has heard: it cannot read the answer."""
    first = greeting.begin("a", "b", TERMS)
    writer.write(sealed.framed(greeting.to_credential(munge, first)))
    await link.read_frame(reader)
    writer.write(sealed.Seal(b"a key of its own").seal(messages.to_bytes(ORDER)))


async def says_it_twice(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, munge: Munge
) -> None:
    first = greeting.begin("a", "b", TERMS)
    writer.write(sealed.framed(greeting.to_credential(munge, first)))
    second = greeting.of_credential(munge, await link.read_frame(reader))
    frame = sealed.Seal(greeting.key(first, second)).seal(messages.to_bytes(ORDER))
    writer.write(frame + frame)


async def no_message(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, munge: Munge
) -> None:
    first = greeting.begin("a", "b", TERMS)
    writer.write(sealed.framed(greeting.to_credential(munge, first)))
    second = greeting.of_credential(munge, await link.read_frame(reader))
    writer.write(sealed.Seal(greeting.key(first, second)).seal(b'["o",7]'))


STRANGERS: list[tuple[Talk, int]] = [
    (nothing, 0),
    (rubbish, 0),
    (too_long, 0),
    (for_another_node, 0),
    (says_to_be_that_node, 0),
    (another_program, 0),
    (without_the_secret, 0),
    (says_it_twice, 1),
    (no_message, 0),
]


async def ends(reader: asyncio.StreamReader) -> None:
    """The other side closes the connection."""
    while await asyncio.wait_for(reader.read(4096), 30):
        pass


@pytest.mark.parametrize(("talk", "heard"), STRANGERS, ids=[t.__name__ for t, _ in STRANGERS])
async def test_a_stranger_is_turned_away(
    munge: Munge, talk: Talk, heard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """heard: how many messages of it count."""
    monkeypatch.setattr(server, "GREETING_S", 1.0)
    async with pair(munge) as (a, b):
        reader, writer = await asyncio.open_connection("127.0.0.1", b.port)
        await talk(reader, writer, munge)
        await ends(reader)
        writer.close()
        assert b.heard.qsize() == heard
        a.peers.send("b", ORDER)  # others are not affected
        for _ in range(heard + 1):
            assert await b.next() == ("a", ORDER)


async def test_what_comes_too_fast_is_closed_before_anything_is_done_for_it(munge: Munge) -> None:
    async with pair(munge) as (_, b):
        b.peers.server.greetings = server.Bucket(1e-9, 3)
        made = [await asyncio.open_connection("127.0.0.1", b.port) for _ in range(5)]
        for reader, _ in made[3:]:
            await ends(reader)
        assert b.peers.server.greeting == 3
        for _, writer in made:
            writer.close()


async def test_why_munge_does_not_take_a_credential_is_said_where_it_is_known(
    munge: Munge, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As where the nodes' keys or clocks differ. The one that calls hears of no reason."""
    ports = {"a": free_port(), "b": free_port()}
    with munged(tmp_path) as socket:
        a, b = Node("a", munge, ports), Node("b", Munge(str(socket)), ports)
        await b.begin()
        a.peers.send("b", ORDER)
        await until(lambda: "munge: Invalid credential" in caplog.text)
        await a.peers.close()
        await b.peers.close()


async def test_strangers_do_not_fill_the_log(
    munge: Munge, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(munge) as (_, b):
        b.peers.server.faults = server.Bucket(1e-9, 3)
        for size in range(sealed.LONGEST + 1, sealed.LONGEST + 6):
            reader, writer = await asyncio.open_connection("127.0.0.1", b.port)
            writer.write(size.to_bytes(4, "big"))
            await ends(reader)
            writer.close()
    assert caplog.text.count("is not taken, or ended: a frame of") == 3


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tls]:
    """By the authority that has signed it, "site" or "other"; all take those of "site" alone."""
    place = tmp_path_factory.mktemp("tls")
    key = "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"
    for name in ("site", "other"):
        ca, made = place / name, place / f"{name}-node"
        new = *key, "-keyout", f"{ca}.key", "-out", f"{ca}.pem"
        openssl("req", "-x509", *new, "-subj", f"/CN={name}", "-days", "1")
        openssl("req", *key, "-keyout", f"{made}.key", "-out", f"{made}.csr", "-subj", "/CN=node")
        by = "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", "1"
        openssl("x509", "-req", "-in", f"{made}.csr", *by, "-out", f"{made}.pem")
    return {
        name: tls.load(f"{place}/{name}-node.pem", f"{place}/{name}-node.key", f"{place}/site.pem")
        for name in ("site", "other")
    }


async def test_daemons_speak_by_tls_where_both_are_to(
    munge: Munge, certificates: dict[str, Tls]
) -> None:
    site = certificates["site"]
    async with pair(munge, secured=(site, site)) as (a, b):
        a.peers.send("b", ORDER)
        assert await b.next() == ("a", ORDER)
        writer = a.peers.links["b"].writer
        assert writer is not None
        assert writer.get_extra_info("cipher")[1] in {"TLSv1.2", "TLSv1.3"}


@pytest.mark.parametrize("caller", ["other", "none"])
@pytest.mark.parametrize("calls_site", [True, False])
async def test_who_has_no_certificate_of_the_site_is_not_spoken_with(
    munge: Munge, certificates: dict[str, Tls], caller: str, calls_site: bool
) -> None:
    """Whichever of both calls the other one. The one that calls says so."""
    both = certificates["site"], certificates.get(caller)
    async with pair(munge, secured=both if not calls_site else (both[1], both[0])) as (a, b):
        a.peers.send("b", ORDER)
        await until(lambda: a.peers.faults(["b"]) != {})
        assert b.heard.qsize() == 0


async def test_so_many_strangers_at_once_leave_munge_alone(munge: Munge) -> None:
    async with pair(munge) as (_, b):
        made = [
            await asyncio.open_connection("127.0.0.1", b.port) for _ in range(server.GREETINGS + 3)
        ]
        await until(lambda: b.peers.server.greeting == server.GREETINGS)
        for reader, _ in made[server.GREETINGS :]:
            await ends(reader)
        for _, writer in made:
            writer.close()


def test_a_credential_of_another_user_or_key_proves_nothing(
    munge: Munge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    credential = greeting.to_credential(munge, greeting.begin("a", "b", TERMS))
    with munged(tmp_path) as socket, pytest.raises(Stranger, match="munge: Invalid credential"):
        greeting.of_credential(Munge(str(socket)), credential)
    monkeypatch.setattr(greeting.os, "geteuid", lambda: 65534)  # type: ignore[attr-defined]
    with pytest.raises(Stranger, match="uid 0 has made the credential"):
        greeting.of_credential(munge, credential)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([greeting.RELEASE + 1, "a", "b", 20, "00", "", "more"], "is of another release"),
        ([greeting.RELEASE + 1], "is of another release"),
        ([greeting.RELEASE, "a", "b", 20, "00", "", "more"], "is not understood"),
    ],
)
def test_another_release_is_named_whatever_else_it_says(
    munge: Munge, said: list[object], why: str
) -> None:
    with pytest.raises(Stranger, match=why):
        greeting.of_credential(munge, munge.encode(messages.json.dumps(said).encode()))  # type: ignore[attr-defined]


def test_a_credential_counts_once(munge: Munge) -> None:
    credential = greeting.to_credential(munge, greeting.begin("a", "b", TERMS))
    greeting.of_credential(munge, credential)
    with pytest.raises(Stranger, match="munge: Replayed credential"):
        greeting.of_credential(munge, credential)


def test_an_answer_to_somebody_else_is_none() -> None:
    first, other = greeting.begin("a", "b", TERMS), greeting.begin("a", "b", TERMS)
    second = greeting.answer(first, "b", TERMS)
    greeting.check(first, second)
    with pytest.raises(Stranger, match="has answered somebody else"):
        greeting.check(other, second)


def test_where_munge_does_not_run_that_is_why(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="munge: "):
        Munge(str(tmp_path / "none")).encode(b"")


# -- messages ------------------------------------------------------------------------------

WHOLE = st.integers(0, (1 << 63) - 1)
JOBS = st.text("0123456789", min_size=1, max_size=10)
STAMPS = st.integers(0, LAST_STAMP)
ORDERS = st.builds(Order, JOBS, WHOLE, WHOLE, st.sampled_from(Phase), WHOLE, STAMPS)
TRUTHS = [st.booleans()] * 4
REPORTS = st.builds(Report, JOBS, WHOLE, WHOLE, st.sampled_from(State), WHOLE, *TRUTHS, STAMPS)


@given(st.one_of(ORDERS, REPORTS))
def test_a_message_comes_out_as_it_went_in(message: Message) -> None:
    found = messages.of_bytes(messages.to_bytes(message))
    assert (found, type(found)) == (message, type(message))


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.floats()),
    lambda inner: st.lists(inner, max_size=11),
    max_leaves=12,
)


@given(st.one_of(st.binary(max_size=64), VALUES))
def test_what_is_no_message_is_found(value: Any) -> None:
    data = value if isinstance(value, bytes) else messages.json.dumps(value).encode()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"message|valid"):
        messages.of_bytes(data)


def test_a_peer_that_says_too_much_is_slowed_down() -> None:
    bucket = server.Bucket(10.0, 2.0)
    assert [bucket.lacks_s(0.0) for _ in range(4)] == [0.0, 0.0, 0.1, 0.2]
    assert bucket.lacks_s(10.0) == 0.0


def test_who_was_refused_in_a_flood_keeps_nobody_out_after_it() -> None:
    bucket = server.Bucket(50.0, 64.0)
    taken = sum(bucket.takes(now / 1000) for now in range(60_000))
    assert 3_000 <= taken <= 3_064
    assert not bucket.takes(59.999)
    assert [bucket.takes(60.02 + n / 50) for n in range(50)] == [True] * 50
