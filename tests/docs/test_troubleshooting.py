"""docs/troubleshooting.md has what is said to users, all of it, and nothing else."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from _gpulease import ffi, lib

from leased.connections.limits import MESSAGES_BURST
from leased.copies import claim_desk
from leased.copies.keeper_link import KeeperLink
from leased.copies.node_memory import Asker, NodeMemory
from leased.core.events import DrainSet, Frozen
from leased.gpus.devices import Gpu
from leased.leasing import waiting_reason
from leased.leasing.leases import Leases
from leased.leasing.registry import NOT_ACROSS
from leased.leasing.tenant import Elsewhere, Tenant
from leased.processes import procfs
from leased.wire import client_messages, daemon_messages, header
from leased.wire.device_bytes import DeviceBytes
from tests.conftest import ROOT
from tests.connections.test_limits import HELLO, REQUEST, Door, refusal
from tests.fuzz.fakes import FakeLoop
from tests.fuzz.host_memory import FakeKeeper
from tests.monitors.test_suspended_jobs import UUID, S
from tests.slurm.leased import PRELOAD
from tests.support.fake_client import FakeClient
from tests.support.given import given
from tests.support.machine import open_checkout_required

WORDS = ROOT / "build" / "meson" / "tests" / "shim" / "lease" / "connection_words"
GAP = "\N{HORIZONTAL ELLIPSIS}"
ROW = re.compile(r"^\| `([^`]*)` \|")
NOBODY = 65534
MIB = 1 << 20


def rows(title: str) -> list[str]:
    """The messages in the table under a heading, as they stand in the document."""
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    part = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    found = [match[1] for line in part.splitlines() if (match := ROW.match(line))]
    assert found, title
    return found


def matches(row: str, said: str) -> bool:
    """Whether this is what is said: gaps stand for anything, and more may follow."""
    pattern = ".+?".join(map(re.escape, row.split(GAP)))
    return re.match(pattern, said) is not None


def check(title: str, said: list[str]) -> None:
    """Each row is said, and whatever is said has a row."""
    known = rows(title)
    for row in known:
        assert any(matches(row, words) for words in said), f"nobody says {row!r}"
    for words in said:
        assert any(matches(row, words) for row in known), f"not in the document: {words!r}"


def connection_words(path: Path | str, uid: int = 0, files: str = "64") -> str:
    done = subprocess.run(
        [str(WORDS), files],
        env={"GPU_LEASE_SOCKET": str(path)},
        check=True,
        capture_output=True,
        text=True,
        user=uid,
    )
    return done.stdout.strip()


def of_the_connection(directory: Path) -> list[str]:
    if os.geteuid():
        pytest.skip("needs root, to try to connect as another user")
    open_checkout_required()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listens:
        listens.bind(str(directory / "open"))
        listens.listen()
        reached = connection_words(directory / "open")
        (directory / "open").chmod(0o600)
        closed = connection_words(directory / "open", NOBODY)
    return [
        *(reached, closed),
        connection_words(directory / "nowhere"),
        connection_words(directory / "open"),  # left behind by who listened
        connection_words("/" + "x" * 200),
        connection_words(directory / "open", files="3"),
    ]


def node() -> Leases:
    """Jobs 1 and 2, which both swap 160 MiB, and want a GPU of 256 MiB."""
    leases = Leases([Gpu(0, UUID, "card", 256 * MIB, 256 * MIB, 0)], lambda: 0)
    for job in (1, 2):
        tenant = Tenant(job, 1000, given("on", S, swaps=True), {UUID: 256 * MIB})
        leases.tenants.open(tenant)
        process = FakeClient(10 * job)
        leases.clients.attach(tenant, process, client_messages.Hello(0, False, {}))
        there = 160 * MIB if job == 1 else 0
        has = {UUID: DeviceBytes(160 * MIB, 0, there)}
        leases.clients.memory(tenant, process, client_messages.Memory(has))
    return leases


def drained(leases: Leases) -> None:
    leases.run(DrainSet(UUID, True))


def lost(leases: Leases) -> None:
    leases.gpus.faults[UUID] = "GPU is lost"


def crowded(leases: Leases) -> None:
    tenant = leases.tenants[1]
    leases.clients.memory(
        tenant, tenant.clients[0], client_messages.Memory({UUID: DeviceBytes(0, 160 * MIB)})
    )


def unhosted(leases: Leases) -> None:
    crowded(leases)
    fixed = dict.fromkeys(client_messages.FIXED, 0) | {"unhosted": 160 * MIB}
    tenant = leases.tenants[1]
    leases.clients.details(
        tenant, tenant.clients[0], client_messages.Details(UUID, 0, lib.GL_CLEAN_ON, fixed)
    )


def stopped(leases: Leases) -> None:
    leases.run(Frozen(1))


def lacks_share(leases: Leases) -> None:
    for job in (1, 2):
        leases.tenants.close(job)
        leases.tenants.open(Tenant(job, 1000, given("on", S, request=0.6), {UUID: 256 * MIB}))


def lacks_copies(leases: Leases) -> None:
    memory = NodeMemory(cast(KeeperLink, FakeKeeper()), FakeLoop(), lambda: MIB)  # type: ignore[arg-type]
    leases.keep_copies(memory, lambda: "wait")
    asker = cast(Asker, leases.tenants[2].clients[0])
    claim = client_messages.Claim(number=1, uuid=UUID, bytes=200 * MIB, least=200 * MIB)
    assert leases.claims is not None
    leases.claims.claim(asker, 2, claim)


def behind_online(leases: Leases) -> None:
    """Job 2 is offline, and job 1 never idle."""
    for job, job_class in ((1, "online"), (2, "offline")):
        leases.tenants.close(job)
        tenant = Tenant(job, 1000, given("on", S, job_class=job_class), {UUID: 256 * MIB})
        leases.tenants.open(tenant)
        leases.clients.attach(tenant, FakeClient(100 * job), client_messages.Hello(0, True, {}))


def elsewhere(why: str) -> Callable[[Leases], None]:
    """Job 2 is on another node too."""

    def case(leases: Leases) -> None:
        leases.tenants[2].nodes = ("a", "b")
        leases.tenants.elsewhere = lambda _: Elsewhere(why, {})

    return case


REASONS: dict[int, Callable[[Leases], None]] = {
    lib.GL_WAITS_DRAINED: drained,
    lib.GL_WAITS_LOST: lost,
    lib.GL_WAITS_CROWDED: crowded,
    lib.GL_WAITS_STOPPED: stopped,
    lib.GL_WAITS_SHARE: lacks_share,
    lib.GL_WAITS_COPIES: lacks_copies,
    lib.GL_WAITS_ONLINE: behind_online,
    lib.GL_WAITS_NODES: elsewhere("gpu-leased has not answered on b (X)"),
}


def reason(code: int, case: Callable[[Leases], None]) -> str:
    """What a client of job 2 is told in this case; it fits the message."""
    leases = node()
    assert waiting_reason.reason(leases, leases.tenants[2]) == waiting_reason.TURN
    case(leases)
    found = waiting_reason.reason(leases, leases.tenants[2])
    assert found.code == code
    sent = ffi.from_buffer("struct gl_waits *", daemon_messages.waits(found.code, found.text))
    assert ffi.string(sent.reason).decode() == found.text
    return found.text


def test_why_a_process_waits(short_dir: Path) -> None:
    known = {getattr(lib, name) for name in dir(lib) if name.startswith("GL_WAITS_")}
    assert known - {lib.GL_WAITS} == {lib.GL_WAITS_TURN, *REASONS}
    said = of_the_connection(short_dir)
    cases = [*REASONS.items(), (lib.GL_WAITS_CROWDED, unhosted)]
    others = ("gpu-leased on a cannot be reached: X", "its turn has not come on b", NOT_ACROSS)
    cases += [(lib.GL_WAITS_NODES, elsewhere(why)) for why in others]
    said += [f"this process waits: {reason(code, case)}" for code, case in cases]
    said.append(claim_desk.words("this process waits", MIB))
    begin, more = "this process waits", ("this process waits: X", "this process waits for ")
    said += [text for text in compiled() if text.startswith(begin) and not text.startswith(more)]
    check("A process waits", said)


def test_why_a_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    said = []
    door = Door()
    door.find = lambda _: None  # type: ignore[assignment,method-assign,return-value]
    sock = door.connect()
    door.say(sock, HELLO)
    said.append(refusal(sock))
    with monkeypatch.context() as patched:
        patched.setattr(procfs, "is_contained", lambda _: True)
        sock = door.connect()
        door.say(sock, HELLO)
        said.append(refusal(sock))
    door = Door()
    sock = door.connect()
    door.say(sock, HELLO)
    door.leases.tenants.close(7)
    door.say(sock, REQUEST)
    said.append(refusal(sock))
    door = Door()
    door.tenant.clients += [FakeClient(n) for n in range(256)]
    sock = door.connect()
    door.say(sock, HELLO)
    said.append(refusal(sock))
    door = Door()
    sock = door.connect(uid=0)  # whose time is not counted, so that this is its rate
    door.say(sock, HELLO)
    for _ in range(2 * MESSAGES_BURST):
        if sock.open:
            door.say(sock, REQUEST)
    said.append(refusal(sock))
    door = Door()
    sock = door.connect()
    door.say(sock, header.in_version(HELLO, 999))
    said.append(refusal(sock))
    check("A process is refused", [f"no lease for this process: {words}" for words in said])


def compiled() -> list[str]:
    """What the interposer can say: its texts, with a word for each value."""
    texts = re.findall(rb"[\x20-\x7e]{8,}", PRELOAD.read_bytes())
    return [re.sub(r"%[-.*\d]*l*[a-z]", "X", text.decode()) for text in texts]


def test_faults_that_a_process_tells() -> None:
    said = [*compiled(), claim_desk.words("out of memory", 1 << 30)]
    for row in rows("A process reports a fault"):
        assert any(matches(row, words) for words in said), f"nobody says {row!r}"
