"""Asks the runner of a job (runner.py), on a socket without a file."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from leased.base.errors import Refused
from leased.processes.identity import peer_of

LONGEST = 1 << 16
ASK_S = 3600.0  # to write all of it


def socket_name(job: str, uid: int) -> bytes:
    """Of the socket on which the runner of a job listens."""
    return f"\0gpu-leasectl-run-{uid}-{job}".encode()


def holder(job: str, uid: int) -> int | None:
    """The user whose process listens on that socket; None: none does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        try:
            sock.connect(socket_name(job, uid))
            return peer_of(sock).uid
        except OSError:
            return None


def ask_runner(job: str, request: dict[str, Any]) -> dict[str, Any]:
    """Ask the runner of one of this user's jobs. Refused: it refuses, or there is none here."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(ASK_S)
        try:
            sock.connect(socket_name(job, os.geteuid()))
            if peer_of(sock).uid != os.geteuid():
                raise OSError("another user listens")
            sock.send(json.dumps(request).encode())
            answer = json.loads(sock.recv(LONGEST))
        except (OSError, ValueError) as fault:
            raise Refused(
                f"no program of job {job} that can be saved runs on this node ({fault})",
                "start it with gpu-leasectl run --checkpoint DIR -- PROGRAM, and ask on its node",
            ) from None
    if "error" in answer:
        raise Refused(str(answer["error"]), str(answer.get("hint", "")))
    return dict(answer)
