"""A process that waits for anything but its turn says so: daemons that work, and that do not."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _gpulease import ffi, lib

from leased.api.client import ask
from leased.wire import daemon_messages, header
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import IMPATIENT, Leased
from tests.slurm.processes import wait_until
from tests.support.fake_daemon import FakeDaemon
from tests.support.programs import SET_UP, Process, line, output, programs, state, tell

ASKS = SET_UP + "say('asks'); say(spin(1000)[0].name)"
HOLDS = SET_UP + "ok(spin(1000)); ok(d.cuCtxSynchronize()); say('holds'); sys.stdin.readline()"
BUSY = (
    SET_UP
    + """
say(spin(1000)[0].name)
while not os.path.exists(sys.argv[1]):
    ok(spin(5_000_000)); ok(d.cuCtxSynchronize())
"""
)

Program = Callable[..., subprocess.Popen[str]]


def complaint(process: subprocess.Popen[str]) -> str:
    """The next line of its standard error."""
    assert process.stderr is not None
    return process.stderr.readline().strip()


@pytest.fixture
def program(emulated_gpu: EmulatedGpu) -> Iterator[Program]:
    """Start a program under the interposer, with the tenant socket at a path."""
    with programs(emulated_gpu, preload=IMPATIENT) as all_of_them:

        def start(path: Path | str, code: str = ASKS) -> Process:
            return all_of_them.start(sys.executable, "-c", code, socket=path)

        yield start


pytestmark = pytest.mark.daemon(preload=IMPATIENT)


class Door:
    """A socket at which connections are accepted, and then done with as a test says."""

    def __init__(self, path: Path, serve: Callable[[socket.socket], None]):
        self.path = path
        self.serve = serve
        self.accepted = 0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Door:
        self.socket.bind(str(self.path))
        self.socket.listen(512)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                self.accepted += 1
                self.serve(connection)


def test_a_socket_that_is_not_there_is_said(program: Program, short_dir: Path) -> None:
    process = program(short_dir / "tenant.sock")
    said = complaint(process)
    assert f"waits for gpu-leased at {short_dir}/tenant.sock (No such file or directory)" in said
    assert "in a container, mount its directory into it" in said


def test_a_socket_where_nobody_listens_is_said(tenant: Start, leased: Leased) -> None:
    holder = tenant(1, "lock:on", "-c", HOLDS)
    assert line(holder) == "holds"
    ask(leased.admin_socket, {"op": "drain", "device": "0"})
    waiter = tenant(2, "lock:on", "-c", ASKS)
    assert line(waiter) == "asks"
    wait_until("job 2 to wait", lambda: state(leased, 2) == "waits")
    leased.kill()
    said = complaint(waiter)
    assert "(Connection refused): nobody listens there; ask the administrator to start" in said
    leased.start()
    ask(leased.admin_socket, {"op": "resume", "device": "0"})
    assert line(waiter) == "CUDA_SUCCESS", "it goes on by itself"


def test_a_daemon_that_lets_nobody_in_is_said_and_not_pressed(
    program: Program, short_dir: Path
) -> None:
    with Door(short_dir / "door", lambda connection: connection.close()) as door:
        said = complaint(program(door.path))
        assert "(it was reached): it does not let this process in" in said
        assert door.accepted < 20


@pytest.mark.usefixtures("uncontrolled")
def test_a_daemon_that_goes_away_is_not_pressed_while_a_lease_ends(
    program: Program, short_dir: Path, emulated_gpu: EmulatedGpu
) -> None:
    """What was submitted does not finish, so the interposer looks again and again."""
    hangs = (
        SET_UP
        + """
told, _ = os.pipe()
wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: os.read(told, 1))
ok(d.cuLaunchHostFunc(0, ctypes.cast(wait, ctypes.c_void_p).value, 0))
say("hangs"); sys.stdin.readline()
"""
    )
    uuid = emulated_gpu.stats()["devices"][0]["uuid"]
    first: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        if first:
            connection.close()
            return
        first.append(connection)
        connection.send(daemon_messages.welcome(daemon_messages.Gang(1, False, {uuid: 64 << 20})))
        connection.send(daemon_messages.grant(1, {}))

    with Door(short_dir / "door", serve) as door:
        process = program(door.path, hangs)
        assert line(process) == "hangs"
        first[0].send(daemon_messages.revoke(1, 10**10))
        while header.check_header(first[0].recv(header.MAX_MESSAGE)) != lib.GL_STUCK:
            pass
        first[0].close()
        assert "waits for gpu-leased" in complaint(program(short_dir / "nowhere"))  # a while later
        assert 1 < door.accepted < 20


HAMMER = """
import socket, sys
while True:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(sys.argv[1])
"""


def test_a_process_that_has_to_queue_for_connect_is_served_in_the_end(
    program: Program, short_dir: Path
) -> None:
    """Others connect again and again: whenever there is room for one, one of them waits."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(str(short_dir / "door"))
        door.listen(1)
        command = [sys.executable, "-c", HAMMER, door.getsockname()]
        others = [subprocess.Popen(command) for _ in range(4)]
        try:
            process = program(short_dir / "door")
            assert line(process) == "asks"
            pid, came = 0, 0
            while pid != process.pid:
                assert came < 5000, "it is not let in"
                with (
                    contextlib.suppress(BlockingIOError),
                    socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock,
                ):
                    sock.setblocking(False)
                    sock.connect(door.getsockname())
                    continue  # there was room: nobody lines up yet
                connection, _ = door.accept()
                came += 1
                with connection:
                    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                    pid = struct.unpack("iII", raw)[0]
        finally:
            for other in others:
                other.kill()
                other.wait()


def test_a_process_whose_stderr_is_not_read_delays_no_other(
    tenant: Start, leased: Leased, program: Program, short_dir: Path
) -> None:
    """The pipe is full: what there is to say is not said."""
    full = (
        SET_UP
        + """
os.set_blocking(2, False)
try:
    while os.write(2, b"x" * 4096): pass
except BlockingIOError:
    os.set_blocking(2, True)
say("asks"); say(spin(1000)[0].name)
"""
    )
    ask(leased.admin_socket, {"op": "drain", "device": "0"})
    waiter = tenant(1, "", "-c", full)
    assert line(waiter) == "asks"
    assert "waits for gpu-leased" in complaint(program(short_dir / "nowhere"))  # a while later
    ask(leased.admin_socket, {"op": "resume", "device": "0"})
    assert line(waiter) == "CUDA_SUCCESS"


def test_a_daemon_that_is_stopped_is_said(leased: Leased, program: Program) -> None:
    assert leased.daemon is not None
    os.kill(leased.daemon.process.pid, signal.SIGSTOP)
    try:
        said = complaint(program(leased.run_dir / "tenant.sock"))
    finally:
        os.kill(leased.daemon.process.pid, signal.SIGCONT)
    assert "it does not let this process in" in said


def test_a_daemon_that_stops_while_a_job_waits_is_said(tenant: Start, leased: Leased) -> None:
    ask(leased.admin_socket, {"op": "drain", "device": "0"})
    waiter = tenant(1, "", "-c", ASKS)
    assert "GPU 0 is taken out of use" in complaint(waiter)
    assert leased.daemon is not None
    os.kill(leased.daemon.process.pid, signal.SIGSTOP)
    try:
        assert "gpu-leased has not answered for a while" in complaint(waiter)
    finally:
        os.kill(leased.daemon.process.pid, signal.SIGCONT)
    ask(leased.admin_socket, {"op": "resume", "device": "0"})
    assert output(waiter) == "asks\nCUDA_SUCCESS\n"


def test_a_refusal_is_read_in_any_version_of_the_protocol(
    program: Program, short_dir: Path
) -> None:
    refusal = bytearray(daemon_messages.refused(1, "this gpu-leased is of another release"))
    refusal[4:6] = (77).to_bytes(2, "little")  # the header's version

    def serve(connection: socket.socket) -> None:
        connection.send(refusal)

    with Door(short_dir / "door", serve) as door:
        process = program(door.path)
        assert "no lease for this process: this gpu-leased is of another" in complaint(process)
        assert line(process) == "asks"
        assert line(process) == "CUDA_ERROR_NOT_PERMITTED"


def test_the_next_daemon_is_asked_what_the_last_one_has_not_answered(
    program: Program, short_dir: Path
) -> None:
    """The daemon is restarted under a process that waits, and keeps its connection."""
    path = short_dir / "tenant.sock"
    with FakeDaemon(path, {}, auto=False) as daemon:
        client = daemon.client(program(path).pid)
        client.why = None
        client.until("a question", lambda: client.asked == 1)
        client.why = (lib.GL_WAITS_TURN, "")
        client.send(daemon_messages.RESYNC)
        client.send(bytes(ffi.buffer(daemon.welcome)))
        client.until("another question", lambda: client.asked == 2)


def test_a_process_that_waits_for_its_turn_prints_nothing(
    tenant: Start, program: Program, short_dir: Path
) -> None:
    end = short_dir / "end"
    holder = tenant(1, "tq:10m,lock:on", "-c", BUSY, str(end))
    assert line(holder) == "CUDA_SUCCESS"
    waiter = tenant(2, "tq:10m,lock:on", "-c", ASKS)
    assert line(waiter) == "asks"
    # Another process, which began later, has said why it waits: so long did this one wait, too.
    for _ in range(2):
        assert "waits for gpu-leased" in complaint(program(short_dir / "nowhere"))
    end.touch()
    output(holder)
    out, err = waiter.communicate(timeout=60)
    assert (out, err) == ("CUDA_SUCCESS\n", "")


def test_a_drained_gpu_is_said_once(
    tenant: Start, leased: Leased, program: Program, short_dir: Path
) -> None:
    ask(leased.admin_socket, {"op": "drain", "device": "0"})
    waiter = tenant(1, "", "-c", ASKS)
    assert "this process waits: GPU 0 is taken out of use by the administrator" in complaint(waiter)
    assert "waits for gpu-leased" in complaint(program(short_dir / "nowhere"))  # a while later
    ask(leased.admin_socket, {"op": "resume", "device": "0"})
    out, err = waiter.communicate(timeout=60)
    assert (out, err) == ("asks\nCUDA_SUCCESS\n", "")


def test_memory_that_cannot_be_moved_is_said(tenant: Start) -> None:
    fixed = (
        SET_UP
        + """
desc = d.CUDA_ARRAY_DESCRIPTOR()
desc.Width, desc.Height, desc.NumChannels = 8192, 4096, 1
desc.Format = d.CUarray_format.CU_AD_FORMAT_FLOAT
array = ok(d.cuArrayCreate(desc))
ok(spin(1000)); ok(d.cuCtxSynchronize()); say("has"); sys.stdin.readline()
ok(d.cuArrayDestroy(array)); say("freed"); sys.stdin.readline()
"""
    )
    wants = SET_UP + "p = ok(d.cuMemAlloc(160 << 20)); say('asks'); say(spin(1000)[0].name)"
    other = tenant(1, "memory:swap", "-c", fixed)
    assert line(other) == "has"
    waiter = tenant(2, "memory:swap", "-c", wants)
    assert line(waiter) == "asks"
    said = complaint(waiter)
    assert "128 MiB of job 1 cannot leave GPU 0 and leave no room for" in said
    tell(other)
    assert line(other) == "freed"
    assert line(waiter) == "CUDA_SUCCESS"


def test_work_of_the_job_that_does_not_finish_holds_up_no_other_process_of_it(
    tenant: Start, leased: Leased
) -> None:
    """What that process does may be what the work waits for."""
    hangs = (
        SET_UP
        + """
told, tell = os.pipe()
wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: os.read(told, 1))
def hang():
    ok(d.cuLaunchHostFunc(0, ctypes.cast(wait, ctypes.c_void_p).value, 0))
"""
    )
    code = (
        hangs
        + f"""
import subprocess
hang()
say("holds"); sys.stdin.readline()
other = subprocess.Popen([sys.executable, "-c", {ASKS!r}])
sys.stdin.readline()
os.write(tell, b"x")
ok(d.cuCtxSynchronize())
other.wait()
"""
    )
    holder = tenant(1, "tq:100ms,lock:on", "-c", code)
    assert line(holder) == "holds"
    ask(leased.admin_socket, {"op": "drain", "device": "0"})  # ends the lease
    ask(leased.admin_socket, {"op": "resume", "device": "0"})
    waits = tenant(2, "tq:10m,lock:on", "-c", ASKS)
    assert line(waits) == "asks"
    tell(holder)
    assert [line(holder), line(holder)] == ["asks", "CUDA_SUCCESS"]
    tell(holder)
    output(holder)
