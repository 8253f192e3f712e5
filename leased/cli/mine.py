"""gpu-leasectl mine, park, unpark and env: what every user may ask, inside a job and outside."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import Any

from leased.api import own_job_answers as answers
from leased.api.answers import CHECKPOINT, MOVE
from leased.api.client import ask
from leased.base.errors import NoAnswer, Refused
from leased.base.words import count, first_of, size, user_of
from leased.cli import show_jobs
from leased.config import config

PRELOAD = "LD_PRELOAD"
NODES_NAMED = 8
NO_JOB = (
    "You have no job on this node that shares a GPU. "
    "With its number, mine also shows one that has ended."
)
ELSEWHERE = (
    "ask on the node where your job runs, which squeue shows; if this is it, tell the "
    "administrator, who can run systemctl start gpu-leased"
)


def tenant_socket(chosen: argparse.Namespace) -> Path:
    """The daemon's socket: the given one, else that of the job's environment or configuration."""
    if given := chosen.socket or os.environ.get("GPU_LEASE_SOCKET"):
        return Path(given)
    try:
        return config.load(chosen.config).tenant_socket
    except Refused:  # users may not read the configuration: then it is the usual one
        return config.Config().tenant_socket


def ask_own(chosen: argparse.Namespace, op: str, **fields: str) -> Any:
    """The answer to a question about the user's own jobs (leased/admin/questions.py). NoAnswer: in
    words for users, who may ask on a host that has no GPU."""
    try:
        return ask(tenant_socket(chosen), {"op": op, **fields})
    except NoAnswer as fault:
        raise NoAnswer(str(fault), ELSEWHERE) from None


def park_text(answer: answers.Mine) -> str:
    """What happens to the jobs' memory now."""
    return "\n".join(map(_parks, answer["jobs"]))


def _parks(job: answers.OwnJob) -> str:
    there = sum(gpu["resident_bytes"] for gpu in job["gpus"])
    if job["parked"] and job["parked"]["by"] in (MOVE, CHECKPOINT):
        return f"job {job['job']} {_state(job)}; it is not parked besides"
    if job["state"] == "parked" and not there:
        return f"job {job['job']} is parked: none of its memory is on a GPU until its next launch"
    return f"job {job['job']} is being parked: {size(there)} leave the GPU now"


def unpark_text(answer: answers.Mine) -> str:
    return "\n".join(f"job {job['job']} {_state(job)}" for job in answer["jobs"])


def env_text(answer: answers.Env) -> str:
    """Commands for a shell; none where the process is of no job that shares a GPU."""
    if answer["job_id"] is None:
        return ""
    wanted = dict(answer["env"])
    there = os.environ.get(PRELOAD, "")
    if answer["preload"] not in there.replace(" ", ":").split(":"):
        wanted[PRELOAD] = f"{there}:{answer['preload']}" if there else answer["preload"]
    return "\n".join(f"export {name}={shlex.quote(text)}" for name, text in wanted.items())


def text(answer: answers.Mine) -> str:
    """Sentences about every job."""
    parts = [_job(job) for job in answer["jobs"]]
    parts += [_ended(job) for job in answer.get("ended", [])]
    if answer.get("more"):
        parts.append(f"and {count(answer['more'], 'more job')}")
    return "\n\n".join(parts) or NO_JOB


def _job(job: answers.OwnJob) -> str:
    lines = [f"job {job['job']} {_state(job)}"]
    if job["reason"]:
        lines.append(f"  why: {job['reason']['text']}")
    nodes = job.get("nodes", [])
    if nodes:
        lines.append(f"  it has its GPUs on {_nodes(nodes)}, all at once or none; here it has:")
    share = job.get("share")
    lines += [f"  it {words}" for words in (show_jobs.of_share(share) if share else [])]
    for gpu in job["gpus"]:
        lines += [f"  GPU {gpu['index']}: {words}" for words in _gpu(job, gpu)]
    return "\n".join(lines)


def _state(job: answers.OwnJob) -> str:
    since = "" if job["since_s"] is None else f" for {_time(job['since_s'])}"
    stopped = ", and is stopped or suspended" if job["stopped"] else ""
    gpu = "GPU" if len(job["gpus"]) == 1 else "GPUs"
    words = {
        "holds": f"has had its {gpu}{since}" if since else f"has its {gpu}",
        "waits": f"has waited for its {gpu}{since}" if since else f"waits for its {gpu}",
        "idle": f"does not use its {gpu} now",
        "parked": f"is parked by {_parker(job)}{since}: none of its memory is on its {gpu}",
        MOVE: f"has been on its way to another GPU{since}",
        CHECKPOINT: f"has stood still for a checkpoint{since}",
    }
    by = job["parked"]["by"] if job["parked"] else ""
    does = words[by if by in (MOVE, CHECKPOINT) else job["state"]]
    of_class = show_jobs.class_option(job.get("job_class"))
    return (
        f"{does}{stopped} (lock:{job['lock']}, memory:{job['memory']}, "
        f"tq:{job['quantum_s']:g}{of_class}, {count(job['clients'], 'process')})"
    )


def _parker(job: answers.OwnJob) -> str:
    """Who parked it."""
    by = job["parked"]["by"] if job["parked"] else "nobody"
    return _user(int(by.removeprefix("user "))) if by.startswith("user ") else by


def _gpu(job: answers.OwnJob, gpu: answers.OwnGpu) -> list[str]:
    lines = []
    others = [holder for holder in gpu["holders"] if holder["job_id"] != job["job_id"]]
    if others:
        also = "also " * (job["state"] == "holds")
        lines.append(f"{also}held by " + ", ".join(map(_holder, others)))
    if job["state"] == "waits":
        before = gpu["before"] or 0
        lines.append(
            f"{before or 'no'} {'job waits' if before < 2 else 'jobs wait'} before this one"
        )
    if gpu["quantum_left_s"] is not None:
        lines.append(f"the quantum ends in {_time(gpu['quantum_left_s'])}")
    lines.append(f"{size(gpu['wanted_bytes'])} wanted, {size(gpu['resident_bytes'])} resident")
    lines.append(f"so far {_time(gpu['lease_s'])} of lease, {_time(gpu['wait_s'])} of waiting")
    return lines


def _holder(holder: answers.Holder) -> str:
    name = "another job" if holder["job"] is None else f"job {holder['job']}"
    whose = " of yours" if holder["own"] else ""
    if not holder["own"] and holder["uid"] is not None:
        whose = f" of {_user(holder['uid'])}"
    return f"{name}{whose} for {_time(holder['since_s'] or 0.0)}"


def _user(uid: int) -> str:
    return user_of(uid) or f"uid {uid}"


def _ended(job: answers.EndedJob) -> str:
    lines = [f"job {job['job']} has ended"]
    nodes = job.get("nodes", [])
    if nodes:
        lines.append(
            f"  it was on {_nodes(nodes)}, and this is what it had here; for all of them, see "
            f"gpu-leasectl report -j {job['job']}"
        )
    for uuid, used in job["usage"].items():
        lines.append(
            f"  {uuid}: {_time(used['lease_s'])} of lease and {_time(used['wait_s'])} of waiting "
            f"in {_time(used.get('time_s', 0.0))}, "
            f"{count(used['handoffs'], 'handoff')}, {size(used['peak_bytes'])} at most"
        )
    lines += [
        f"  step {job['job']}.{name} on {uuid}: {_time(used.get('lease_s', 0.0))} of lease and "
        f"{_time(used.get('wait_s', 0.0))} of waiting in {_time(used.get('time_s', 0.0))}"
        for name, step in job.get("steps", {}).items()
        for uuid, used in step["gpus"].items()
    ]
    return "\n".join(lines)


def _nodes(names: list[str]) -> str:
    return f"{count(len(names), 'node')} ({first_of(names, NODES_NAMED)})"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
