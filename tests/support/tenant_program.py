"""The program of tenant.py: `tenant_program.py SOCKET REQUEST stays|ends COMMAND...`.

Tests start it hundreds of times, and it takes next to nothing but the start of Python: so it
imports nothing of ours, and no subprocess. It ends with the lower byte of the command's status, and
what the command has left behind ends before; if it stays, it ends when it is killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys

PR_SET_CHILD_SUBREAPER = 36
LONGEST_ANSWER = 1 << 20
ANSWER_S = 10.0


def ask(path: str, request: dict[str, object]) -> dict[str, object]:
    """The daemon's answer, or its refusal."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(path)  # this waits where the daemon's backlog is full
        sock.settimeout(ANSWER_S)
        sock.send(json.dumps(request).encode())
        answer: dict[str, object] = json.loads(sock.recv(LONGEST_ANSWER))
    return answer


def environment(answer: dict[str, object]) -> dict[str, str]:
    """What the plugin would set of a job's environment."""
    given = answer["env"]
    assert isinstance(given, dict)
    before = os.environ.get("LD_PRELOAD")
    preload = f"{before}:{answer['preload']}" if before else str(answer["preload"])
    return given | {"LD_PRELOAD": preload}


def end_the_rest() -> None:
    """Kill what the command has left behind, as slurmstepd does where a job ends."""
    while True:
        # Pathlib would take as long to import as all of this.
        with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123
            left = [int(pid) for pid in file.read().split()]
        if not left:
            return
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def main() -> int:
    path, request, stays, *command = sys.argv[1:]
    uid = int(os.environ.get("JOB_UID", os.getuid()))
    answer = ask(path, json.loads(request) | {"uid": uid})
    if not answer.get("ok"):
        said = filter(None, [answer.get("error"), answer.get("hint")])
        print(*said, sep="; ", file=sys.stderr, flush=True)
        return 1
    # What its tasks leave behind stays the job's, as in a job's cgroup.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ignored_by_python = [signal.SIGPIPE, signal.SIGXFSZ]
    env = os.environ | environment(answer)
    pid = os.posix_spawnp(command[0], command, env, setsigdef=ignored_by_python)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    while stays == "stays":
        signal.pause()
    end_the_rest()
    return status & 0xFF


if __name__ == "__main__":
    os._exit(main())  # nothing of Python is freed
