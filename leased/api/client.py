"""Ask the daemon of this node, on either of its sockets."""

from __future__ import annotations

import json
import socket
import struct
from pathlib import Path
from typing import Any, cast

from leased.api.answers import Status, TenantPage
from leased.base.errors import NoAnswer, Refused
from leased.base.words import user_of

ANSWER_S = 10.0
LONGEST_ANSWER = 1 << 20

Answer = dict[str, Any]


def ask(path: Path, request: dict[str, Any], wait_s: float = ANSWER_S) -> Answer:
    """Send the daemon one request and return its answer. wait_s: how long to wait for it, seconds.

    Refused: the daemon refuses, for the reason that it gives, or the socket is closed to this
    user. NoAnswer: the daemon cannot be reached, and how to change that.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        # Where the daemon's backlog is full a connect() without blocking fails at once.
        limit = struct.pack("ll", int(wait_s), max(1, int(wait_s % 1 * 1e6)))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        try:
            sock.connect(str(path))
            sock.settimeout(wait_s)
            sock.send(json.dumps(request).encode())
            answer = json.loads(sock.recv(LONGEST_ANSWER))
            if not isinstance(answer, dict):
                raise ValueError("the answer is not an object")
        except PermissionError:
            hint = "run as root, or see admin_group; gpu-leasectl mine shows your own jobs"
            raise Refused(f"{path} is not open to you", hint) from None
        except (FileNotFoundError, ConnectionRefusedError):
            raise NoAnswer(
                f"gpu-leased does not answer at {path}", "run systemctl start gpu-leased"
            ) from None
        except (OSError, ValueError) as fault:
            raise NoAnswer(
                f"gpu-leased at {path} gives no answer: {fault}", "see journalctl -u gpu-leased"
            ) from None
    if not answer.pop("ok", False):
        raise Refused(str(answer.get("error", "refused")), str(answer.get("hint", "")))
    return answer


def ask_status(path: Path, wait_s: float = ANSWER_S) -> Status:
    """The whole status, put together from the daemon's pages (leased/admin/status.py).

    wait_s: how long to wait for each page, seconds.
    """
    answer = cast(Status, ask(path, {"op": "status"}, wait_s))
    after = answer.pop("next", None)
    while after is not None:
        page = cast(TenantPage, ask(path, {"op": "status", "after": after}, wait_s))
        answer["tenants"] += page["tenants"]
        after = page.get("next")
    # Here, since the daemon must not wait for it.
    for stray in answer["strays"].get("now", []):
        stray["user"] = user_of(stray["uid"])
    return answer
