"""The Python half of the plugin: register a job's step with gpu-leased, from slurmstepd.

Compiled into gpu_share_python.so (see build_half.py) and run without site
packages: only the standard library is there.
"""

from __future__ import annotations

import json
import re
import socket
import time
from typing import Any

ANSWER_S = 5.0
AGAIN_S = 0.1
REMEDY = "start it with: systemctl start gpu-leased"


def parse_gpus(text: str) -> list[int]:
    """Slurm's list of absolute GPU indices: "0,2" or "0-3". ValueError: it is none."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part)
        if match is None:
            raise ValueError(f"{text!r} is no list of GPU indices")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


def exchange(path: str, message: bytes, patience_s: float) -> bytes:
    """Send one packet, receive one. OSError: nobody answers; ConnectionError: it went away."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as sock:
        sock.settimeout(patience_s)
        sock.connect(path)
        sock.send(message)
        answer = sock.recv(65536)
    if not answer:
        raise ConnectionResetError("it ended without an answer")
    return answer


def ask(path: str, request: dict[str, Any]) -> dict[str, Any]:
    """One request to the daemon. OSError or ValueError: it gave no answer.

    A daemon that goes away with the request is restarted in a moment, and what was
    asked may be asked again: a step that it knows already it registers once more.
    """
    until = time.monotonic() + ANSWER_S
    while True:
        try:
            left = max(AGAIN_S, until - time.monotonic())
            answer = json.loads(exchange(path, json.dumps(request).encode(), left))
            break
        except (ConnectionResetError, BrokenPipeError):
            if time.monotonic() > until:
                raise
            time.sleep(AGAIN_S)
    if not isinstance(answer, dict):
        raise ValueError("the answer is not an object")
    return answer


def sentence(answer: dict[str, Any]) -> str:
    """A refusal of the daemon in one line."""
    text = str(answer.get("error", "refused without a reason"))
    hint = str(answer.get("hint", ""))
    return f"{text}; {hint}" if hint else text


def register(path: str, step: dict[str, Any], gpus: str) -> str:
    """The reply for the C side: "ok", the library and the environment by line, or a refusal."""
    try:
        answer = ask(path, {"op": "register", **step, "gpus": parse_gpus(gpus)})
    except (FileNotFoundError, ConnectionRefusedError):
        return f"refused\ngpu-leased is not running on this node; {REMEDY}"
    except (OSError, ValueError) as fault:
        return f"refused\ngpu-leased on this node does not answer ({fault}); {REMEDY}"
    if not answer.get("ok"):
        return "refused\n" + sentence(answer).replace("\n", " ")
    env = [f"{name}={value}" for name, value in answer["env"].items()]
    return "\n".join(["ok", answer["preload"], *env]) + "\n"
