"""An emulated nvidia-cuda-mps-control: as much of NVIDIA's program as leads to clients of a server.

`-d` makes a daemon that serves CUDA_MPS_PIPE_DIRECTORY, with its pid file there and its logs in
CUDA_MPS_LOG_DIRECTORY. Without it commands are read from standard input. Clients are programs with
the emulated libcuda.so.1 (abi/mps.c). One user at a time has a server, and others wait until its
last client has ended, unless the daemon was started with -multiuser-server. After a fault of a
client no new one is taken until all have ended. A server is no process of its own here.

It has the second interface of NVIDIA's releases from 615 on too (MPS v3), as much as is needed to
tell the two apart: that one is asked for by `-p 3` or, before that, CUDA_MPS_PROTOCOL_VERSION, has
other options, and reads no commands from standard input. Who asks a daemon follows its version.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import stat
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path

VERSIONS = (2, 3)
MULTIUSER = {2: "-multiuser-server", 3: "-m"}
PID_FILE = "nvidia-cuda-mps-control.pid"


def pipes() -> Path:
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))


@dataclass
class Server:
    """The server of a user's clients, or of all users'. faulty: one client has had a fault."""

    number: int
    uid: int
    clients: set[socket.socket] = field(default_factory=set)
    faulty: bool = False


class Control:
    """The daemon: one loop over its connections."""

    def __init__(self, multiuser: bool, version: int = 2):
        self.multiuser, self.version = multiuser, version
        self.logs = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"))
        self.listener = socket.socket(socket.AF_UNIX)
        self.selector = selectors.DefaultSelector()
        self.server: Server | None = None
        self.started = 0
        self.pending: list[tuple[socket.socket, int]] = []
        self.ends = False

    def log(self, name: str, words: str) -> None:
        with (self.logs / f"{name}.log").open("a") as file:
            file.write(f"[2026-01-01 00:00:00.000 {name.title()} {os.getpid()}] {words}\n")

    def open(self) -> None:
        """Bind the socket. OSError: another daemon has it."""
        path = pipes() / "control"
        with socket.socket(socket.AF_UNIX) as other, contextlib.suppress(OSError):
            other.connect(str(path))
            raise SystemExit("an instance of this daemon is already running")
        path.unlink(missing_ok=True)
        self.listener.bind(str(path))
        path.chmod(0o666)
        self.listener.listen(64)
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.logs.mkdir(exist_ok=True)
        self.log("control", f"Starting control daemon using socket {path}")

    def serve(self) -> None:
        while not self.ends:
            for key, _ in self.selector.select():
                if key.fileobj is self.listener:
                    connection, _ = self.listener.accept()
                    self.selector.register(connection, selectors.EVENT_READ)
                elif isinstance(key.fileobj, socket.socket):
                    self.hear(key.fileobj)
        for name in ("control", PID_FILE):
            (pipes() / name).unlink(missing_ok=True)

    def hear(self, connection: socket.socket) -> None:
        try:
            said = connection.recv(4096).decode().split("\n")
        except ConnectionError:
            said = [""]
        if said == [""]:
            self.leave(connection)
        for line in filter(None, said):
            self.take(connection, line)

    def take(self, connection: socket.socket, line: str) -> None:
        if line == "client":
            raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            self.pending.append((connection, 0 if self.multiuser else struct.unpack("iII", raw)[1]))
            self.admit()
        elif line == "fault":
            if self.server and not self.server.faulty:
                self.server.faulty = True
                self.log("server", "Server is handling a fatal GPU error.")
        else:
            connection.sendall(self.answer(line).encode())
            self.leave(connection)

    def answer(self, command: str) -> str:
        if command.split(maxsplit=1)[0] == "quit":  # -t: how many seconds clients have
            self.ends = True
            return "\n"
        if command == "version":
            return f"{self.version}\n"
        if command == "get_server_list":
            return f"{self.server.number}\n" if self.server else "\n"
        return f"Invalid command {command!r}\n"

    def admit(self) -> None:
        """Take the clients that wait and that the server may have."""
        for connection, uid in list(self.pending):
            if self.server is None:
                self.started += 1
                self.server = Server(os.getpid() * 1000 + self.started, uid)
                self.log("control", f"Starting new server {self.server.number} for user {uid}")
            if self.server.uid != uid:
                continue
            self.pending.remove((connection, uid))
            if not self.server.faulty:
                self.server.clients.add(connection)
            with contextlib.suppress(OSError):
                connection.sendall(b"0\n" if self.server.faulty else b"%d\n" % self.server.number)

    def leave(self, connection: socket.socket) -> None:
        self.selector.unregister(connection)
        connection.close()
        self.pending = [(waits, uid) for waits, uid in self.pending if waits is not connection]
        if self.server:
            self.server.clients.discard(connection)
            if not self.server.clients:
                self.server = None
                self.admit()


def daemon(multiuser: bool, version: int = 2) -> None:
    """Become a daemon, once the socket is there."""
    control = Control(multiuser, version)
    control.open()
    child = os.fork()
    if child:
        (pipes() / PID_FILE).write_text(f"{child}\n")
        os._exit(0)
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    control.serve()


def ask(command: str) -> str:
    """What the daemon answers. OSError: there is none."""
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(str(pipes() / "control"))
        control.sendall(f"{command}\n".encode())
        return control.recv(4096).decode()


def command(options: list[str]) -> int:
    """Pass the commands of standard input on; with version 3 the option."""
    try:
        if int(ask("version")) == 2:
            for line in filter(None, map(str.strip, sys.stdin)):
                print(ask(line), end="")
        elif options == ["-q"]:
            ask("quit")
        else:
            return usage()
    except OSError:
        print("Cannot find MPS control daemon process", file=sys.stderr)
        return 1
    return 0


def usage() -> int:
    print("usage: nvidia-cuda-mps-control [-d] [-m | -multiuser-server] [-q]", file=sys.stderr)
    return 1


def main(version: int = 2) -> int:
    """version: where nothing says which."""
    options = sys.argv[1:]
    if "-p" in options:
        at = options.index("-p")
        version, options[at : at + 2] = int(options[at + 1]), []
    version = int(os.environ.get("CUDA_MPS_PROTOCOL_VERSION") or version)
    if "-d" not in options:
        return command(options)
    if version not in VERSIONS or not set(options) <= {"-d", MULTIUSER[version]}:
        return usage()
    daemon(MULTIUSER[version] in options, version)
    return 0


def install(directory: Path, version: int = 2) -> Path:
    """The program by NVIDIA's name, in a directory. The kernel names its process so, too. version:
    of its interface where nothing says which.

    gpu-leased gives it no environment but its own. So it begins anew with the words by which tests
    find the programs that they leave behind (tests/support/leaks.py).
    """
    marks = {name: text for name, text in os.environ.items() if name.startswith("GPUL_TEST")}
    root = Path(__file__).resolve().parents[2]
    path = directory / "nvidia-cuda-mps-control"
    path.write_text(
        f"#!/usr/bin/python3 -I\nimport os, sys\nsys.path[:0] = [{str(root)!r}]\n"
        f"marks = {marks!r}\n"
        "if not marks.keys() <= os.environ.keys():\n"
        "    os.execve(sys.argv[0], sys.argv, os.environ | marks)\n"
        f"from tests.emugpu.mps_control import main\nsys.exit(main({version}))\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return path


if __name__ == "__main__":
    sys.exit(main())
