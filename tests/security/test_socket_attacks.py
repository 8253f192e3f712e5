"""Users at the daemon's two sockets: whatever they send or hold, others are served as before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from _gpulease import ffi, lib

from leased.api.client import ask
from leased.connections import limits
from leased.wire import header
from tests.conftest import Start
from tests.connections.test_limits import HELLO, REQUEST
from tests.emugpu.programs import line
from tests.emugpu.server import EmulatedGpu
from tests.security.test_connection_attacks import descriptors
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, tell
from tests.support.wire_client import message

NOBODY = 65534
# A process of a user, in a job or in none. argv: the socket, a HELLO, a REQUEST.
USER = f"""
import array, os, random, socket, sys
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
def connect(path=sys.argv[1]):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(path)  # with a time limit it would not wait for its place in the line
    sock.settimeout(60)
    return sock
HELLO, REQUEST = map(bytes.fromhex, sys.argv[2:4])
def say(*words):
    print(*words, flush=True)
"""
HONEST = SET_UP + "ok(spin(1000)); ok(d.cuCtxSynchronize()); say('ran'); sys.stdin.readline()"
AGAIN = HONEST.replace("sys.stdin.readline()", "") + (
    "\nfor _ in sys.stdin:\n    ok(spin(1000)); ok(d.cuCtxSynchronize()); say('ran')"
)


class Ground:
    """The daemon, an honest job, and hostile ones."""

    def __init__(self, leased: Leased, tenant: Start):
        self.leased = leased
        self.tenant = tenant
        self.honest = tenant(7, "lock:on,tq:100ms", "-c", AGAIN)
        assert line(self.honest) == "ran"
        self.before = descriptors(leased)

    def words(self, code: str) -> list[str]:
        socket = str(self.leased.run_dir / "tenant.sock")
        return ["-c", USER + code, socket, HELLO.hex(), REQUEST.hex()]

    def stranger(self, code: str) -> str:
        """What a process of no job prints."""
        words = [sys.executable, *self.words(code)]
        done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=120)
        return done.stdout

    def job(self, code: str) -> subprocess.Popen[str]:
        """A process of job 8, which shares the GPU with the honest one."""
        return self.tenant(8, "lock:on,tq:100ms", *self.words(code))

    def still_served(self) -> None:
        tell(self.honest)
        assert line(self.honest) == "ran"
        wait_until(
            "the daemon to be rid of them", lambda: descriptors(self.leased) <= self.before + 8
        )
        assert "Traceback" not in self.leased.log.read_text()


# It waits for 2 s, not for 10, for a lease that nobody will give back.
pytestmark = pytest.mark.daemon(extra='[limits]\ndrain = "2s"\n')


@pytest.fixture
def ground(leased: Leased, emulated_gpu: EmulatedGpu, tenant: Start) -> Ground:
    del emulated_gpu
    if os.getuid() != 0:
        pytest.skip("processes of other users need root")
    return Ground(leased, tenant)


def test_packets_that_are_not_sound(ground: Ground) -> None:
    said = ground.stranger("""
chosen = random.Random(1)
ended = 0
for n in range(400):
    sock = connect()
    data = bytearray(HELLO)
    for _ in range(n % 5):
        data[chosen.randrange(len(data))] = chosen.randrange(256)
    sock.send((bytes(data), chosen.randbytes(n), bytes(data[:n % 40]), bytes(64000))[n % 4])
    try:
        ended += sock.recv(1024)[:4] == HELLO[:4]
    except ConnectionResetError:
        pass
    sock.close()
say(ended)
""")
    assert int(said) > 300, "most are told why they are refused"
    ground.still_served()


def test_descriptors_that_come_with_messages(ground: Ground) -> None:
    code = """
import resource
# The kernel lets so many be on their way.
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
sock = connect()
null = os.open("/dev/null", os.O_RDONLY)
passed = array.array("i", [null] * 253)
for _ in range(20):  # 5,060 of them
    try:
        sock.sendmsg([REQUEST], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
    except (BrokenPipeError, ConnectionResetError):
        sock = connect()  # refused: once more
say(len(sock.recv(1024)))
sys.stdin.readline()
"""
    job = ground.job(code.replace("sock = connect()", "sock = connect(); sock.send(HELLO)"))
    assert int(line(job)) == ffi.sizeof("struct gl_welcome")
    assert descriptors(ground.leased) <= ground.before + 8
    strangers = code.replace("say(len(sock.recv(1024)))\nsys.stdin.readline()", "say('sent')")
    assert ground.stranger(strangers) == "sent\n"
    tell(job)
    job.communicate(timeout=60)
    ground.still_served()


def test_a_process_that_does_not_read(ground: Ground) -> None:
    job = ground.job("""
socks = [connect() for _ in range(100)]
for sock in socks:
    sock.send(HELLO)
for _ in range(200):
    for sock in socks:
        try:
            sock.send(REQUEST, socket.MSG_DONTWAIT)
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            pass
say("sent")
sys.stdin.readline()
""")
    assert line(job) == "sent"
    tell(ground.honest)
    assert line(ground.honest) == "ran", "its turn comes"
    tell(job)
    job.communicate(timeout=60)
    ground.still_served()


@pytest.mark.parametrize("epoch", [1, 2**63, 2**64 - 1])
def test_claims_of_leases(ground: Ground, epoch: int) -> None:
    claim = message(lib.GL_HELLO, held_epoch=epoch)
    job = ground.job(f"""
sock = connect()
sock.send(bytes.fromhex("{claim.hex()}"))
for _ in range(2):
    say(sock.recv(1024).hex())
""")
    told = [header.check_header(bytes.fromhex(line(job))) for _ in range(2)]
    assert told == [lib.GL_WELCOME, lib.GL_REVOKE]
    job.communicate(timeout=60)
    ground.still_served()


def test_a_stranger_with_everything_that_a_job_has(ground: Ground) -> None:
    """Its environment, its library and its words: but not its place in the kernel."""
    env = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_JOB_UID": "0", "SLURM_STEP_GPUS": "0"}
    for name, value in env.items():
        os.environ[name] = value
    try:
        said = ground.stranger("sock = connect(); sock.send(HELLO); say(sock.recv(1024).hex())")
    finally:
        for name in env:
            del os.environ[name]
    reply = ffi.from_buffer("struct gl_refused *", bytes.fromhex(said))
    assert (reply.header.type, reply.code) == (lib.GL_REFUSED, lib.GL_REFUSED_NO_TENANT)
    ground.still_served()


def test_a_child_of_a_dead_parent(ground: Ground) -> None:
    said = ground.stranger("""
sock = connect()
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    pass
sock.send(HELLO)
say(sock.recv(1024).hex())
""")
    reply = ffi.from_buffer("struct gl_refused *", bytes.fromhex(said))
    assert reply.header.type == lib.GL_REFUSED
    ground.still_served()


def test_the_admin_socket_is_not_for_users(ground: Ground) -> None:
    code = """
import json
try:
    sock = connect(PATH)
except PermissionError:
    say("no")
    sys.exit()
for request in ({"op": "register", "job_id": 9, "uid": 0, "nodes": 1, "shards": 1, "gpus": [0]},
                {"op": "job_end", "job_id": 7}, {"op": "set", "lock": "off"},
                {"op": "drain", "device": "all"}, {"op": "resume", "device": "all"},
                {"op": "reload"}):
    sock.send(json.dumps(request).encode())
    say(json.loads(sock.recv(65536))["ok"])
""".replace("PATH", repr(str(ground.leased.admin_socket)))
    assert ground.stranger(code).split() == ["no"]
    ground.leased.admin_socket.chmod(0o666)  # the site's mistake
    assert ground.stranger(code).split() == ["False"] * 6
    (tenant,) = ask(ground.leased.admin_socket, {"op": "status"})["tenants"]
    assert tenant["job_id"] == 7
    ground.still_served()


def test_many_idle_connections_at_the_admin_socket(ground: Ground) -> None:
    ground.leased.admin_socket.chmod(0o666)
    path = repr(str(ground.leased.admin_socket))
    # Which of them are closed depends on how much time of the daemon's each has cost.
    said = ground.stranger(f"""
import select
socks = {{sock.fileno(): sock for sock in [connect({path}) for _ in range(400)]}}
poll = select.poll()
for sock in socks.values():
    poll.register(sock, select.POLLIN)
while len(socks) > {limits.ADMIN_PER_UID}:
    for number, _ in poll.poll():
        poll.unregister(number)
        assert socks.pop(number).recv(1) == b""
say(len(socks), len(poll.poll(0)))
""")
    assert said.split() == [str(limits.ADMIN_PER_UID), "0"]
    ground.still_served()
    assert Path(ground.leased.admin_socket).exists()
