"""The plugin's Python half against daemons that go away while it asks."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spank import register

STEP = {"job_id": 7, "step_id": "0"}
ANSWER = {"ok": True, "preload": "/lib.so", "env": {"GPU_LEASE_SOCKET": "/run/x"}}


@contextmanager
def daemon(path: Path, answers: list[bytes | None]) -> Iterator[list[bytes]]:
    """Answers one connection after the other; None: ends it without one. What it was asked."""
    asked: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            for answer in answers:
                connection, _ = listening.accept()
                with connection:
                    if answer is not None:
                        asked.append(connection.recv(65536))
                        connection.send(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield asked
        thread.join()


def test_a_daemon_that_ends_meanwhile_is_asked_again(short_dir: Path) -> None:
    path = short_dir / "admin.sock"
    with daemon(path, [None, None, json.dumps(ANSWER).encode()]) as asked:
        said = register.register(str(path), STEP, "0,2-3")
    assert said == "ok\n/lib.so\nGPU_LEASE_SOCKET=/run/x\n"
    assert json.loads(asked[0]) == {"op": "register", **STEP, "gpus": [0, 2, 3]}


def test_nobody_is_not_waited_for(short_dir: Path) -> None:
    said = register.register(str(short_dir / "admin.sock"), STEP, "0")
    assert said.startswith("refused\ngpu-leased is not running on this node; start it with")


def test_an_answer_that_makes_no_sense_is_a_refusal(short_dir: Path) -> None:
    path = short_dir / "admin.sock"
    with daemon(path, [b"[]"]):
        said = register.register(str(path), STEP, "0")
    assert said.startswith("refused\ngpu-leased on this node does not answer")
