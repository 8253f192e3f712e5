"""The Python half of the plugin: register a job's step with gpu-leased, from slurmstepd.

Compiled into gpu_share_python.so (see build_half.py) and run without site
packages: only the standard library is there.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import Any, cast

from leased.api.step_fields import JOIN_FIELDS, NODES_MOST, Admitted, Register, Step
from spank import device_memory
from spank.allocation import Allocation, NoAnswer

# Longer than a daemon takes that is started again on a busy machine.
ANSWER_S = 30.0
AGAIN_S = 0.1
LATE_S = 5.0
REMEDY = "an administrator starts it with: systemctl start gpu-leased"
ENV_OPTION = "GPU_SHARE"

Request = dict[str, Any]


class Refusal(Exception):
    """Why the job cannot share, in one sentence for its user."""


def exchange(path: str, message: bytes, patience_s: float) -> bytes:
    """Send one packet, and receive one. OSError: there is no answer. ConnectionError: the daemon
    ended."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as sock:
        sock.settimeout(patience_s)
        sock.connect(path)
        sock.send(message)
        answer = sock.recv(65536)
    if not answer:
        raise ConnectionResetError("it ended without an answer")
    return answer


def ask(path: str, request: Request) -> Request:
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


def ask_or_refuse(path: str, request: Request) -> Request:
    """One request to the daemon. Refusal: it gave no answer."""
    try:
        return ask(path, request)
    except (FileNotFoundError, ConnectionRefusedError):
        raise Refusal(f"gpu-leased is not running on this node; {REMEDY}") from None
    except (OSError, ValueError) as fault:
        raise Refusal(f"gpu-leased on this node does not answer ({fault}); {REMEDY}") from None


def sentence(answer: Request) -> str:
    """The daemon's refusal, in one line."""
    text = str(answer.get("error", "refused without a reason"))
    hint = str(answer.get("hint", ""))
    return (f"{text}; {hint}" if hint else text).replace("\n", " ")


def granted(answer: Admitted, late: str = "") -> str:
    """The reply for the C side to a step that shares: the library, a note, the environment. late:
    the note that it begins late."""
    lines = ["ok", f"preload={answer['preload']}"]
    note = "; ".join(filter(None, (late, str(answer.get("note") or ""))))
    if note:
        lines.append("note=" + note.replace("\n", " "))
    lines += [f"{name}={value}" for name, value in answer["env"].items()]
    return "\n".join(lines) + "\n"


def why_none(allocation: Allocation) -> str:
    """The refusal of a job that has --gpu-share and no shard."""
    if allocation.whole:
        return (
            f"--gpu-share, but Slurm gave this job whole GPUs ({allocation.whole}); ask for "
            "--gres=shard:1 instead of them and without --exclusive, or leave out --gpu-share"
        )
    return "--gpu-share without a shard; add --gres=shard:1"


def admitted(answer: Request) -> Admitted | None:
    """The answer if the daemon has admitted the step, else None."""
    return cast(Admitted, answer) if answer.get("ok") else None


def join(path: str, step: Step) -> Admitted | None:
    """What a further step of a job that shares gets. None: the daemon does not know it."""
    fields = {name: value for name, value in step.items() if name in JOIN_FIELDS}
    return admitted(ask_or_refuse(path, {"op": "join", **fields}))


def allocation_for(step: Step, allocation_of: Callable[[int], Allocation]) -> Allocation:
    """What Slurm gave the job. Refusal: slurmctld does not say it."""
    try:
        return allocation_of(step["job_id"])
    except NoAnswer as fault:
        raise Refusal(
            f"slurmctld does not say which GPUs job {step['job_id']} has ({fault}); "
            "submit the job again when `scontrol ping` finds it"
        ) from None


def admit(path: str, step: Step, given: bool, has: Allocation) -> Admitted:
    """What a job gets that has shards and that the daemon does not know yet."""
    request = Register(
        **step,
        job=has.job,
        start=has.start,
        partition=has.partition,
        qos=has.qos,
        account=has.account,
        restarts=has.restarts,
        nodes=len(has.nodes),
        node_names=list(has.nodes) if 1 < len(has.nodes) <= NODES_MOST else [],
        shards=has.shards,
        gpus=list(has.gpus),
        shards_of=list(has.shards_of),
    )
    answer = ask_or_refuse(path, {"op": "register", **request})
    until = time.monotonic() + ANSWER_S
    while answer.get("later") and time.monotonic() < until:
        time.sleep(AGAIN_S)
        answer = ask_or_refuse(path, {"op": "register", **request})
    found = admitted(answer)
    if found:
        return found
    why = sentence(answer)
    from_env = step["options"] and not given and why.startswith("gpu-share: ")
    raise Refusal(why + (f" (that value is from {ENV_OPTION} in its environment)" * bool(from_env)))


def late_note(waited_s: float) -> str:
    """What the user is told of a step that has waited for slurmctld for so long; "": nothing."""
    if waited_s < LATE_S:
        return ""
    return f"it begins {waited_s:.0f} s later, since slurmctld did not say before which GPUs it has"


def entered(answer: Admitted, say: Callable[[str], None], late: str = "") -> str:
    """The reply for the C side to a step that shares, whose job the kernel keeps to its memory of
    the GPUs where it can."""
    fault = device_memory.cap(answer.get("dmem", {}))
    if fault:
        say(fault)
    return granted(answer, late)


def register(
    path: str,
    step: Step,
    known: bool,
    given: bool,
    allocation_of: Callable[[int], Allocation],
    *,
    say: Callable[[str], None] = lambda _: None,
) -> str:
    """The reply for the C side: "ok" and lines, "none" (it does not share), or a refusal.

    path: the daemon's socket. known: a step of the job has registered on this node before.
    given: the options are those of --gpu-share. The daemon is asked nothing for jobs that
    do not share, and slurmctld nothing for those that are known. say: writes to slurmstepd's log.
    """
    try:
        joined = join(path, step) if known else None
        if joined is not None:
            return entered(joined, say)
        began = time.monotonic()
        has = allocation_for(step, allocation_of)
        if has.shards:
            late = late_note(time.monotonic() - began)
            return entered(admit(path, step, given, has), say, late)
        # An option counts for all components of a heterogeneous job; not all need share.
        if given and not has.component:
            raise Refusal(why_none(has))
        return "none"
    except Refusal as refusal:
        return f"refused\n{refusal}"
