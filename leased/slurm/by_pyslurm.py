"""Slurm's answers through pyslurm: a program that prints jobs or nodes as squeue and sinfo do.

    python -I -c "..." jobs|nodes

A program of its own, since libslurm, which pyslurm loads, ends its process where slurm.conf has a
fault, and reads slurm.conf once only. It prints what the readers of queue_json.py and nodes_json.py
use and nothing else: squeue's JSON has some 3,000 bytes of a job, and in 22.05 whatever users wrote
into it.

Releases: pyslurm of 22.05 alone. From 23.11 on Slurm writes how many shards a job and a node has of
each GPU, shard:3(1/4,2/4), and pyslurm's parser of GRES drops that, so there Slurm's commands are
asked. They are also asked for what it lacks in any release: all runs of requeued jobs in accounting
(`gpu-leasectl report`), and changes of pending arrays.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import Any

NAME = "pyslurm"
RELEASES = ((22, 5),)


def why_not(slurm: tuple[int, ...] | None) -> str:
    """Why pyslurm is not asked, where this release of Slurm is installed; "": it is. It is not
    loaded."""
    try:
        major, minor = metadata.version(NAME).split(".")[:2]
        found = int(major), int(minor)
    except metadata.PackageNotFoundError:
        return "pyslurm is not installed"
    except ValueError:
        return "pyslurm does not say its release"
    if slurm is None or found != slurm[:2]:
        return f"pyslurm is for Slurm {_text_of(found)}, and here is {_text_of(slurm)}"
    if found not in RELEASES:
        return f"pyslurm for Slurm {_text_of(found)} does not say which GPU's shards a job has"
    return ""


def _text_of(release: tuple[int, ...] | None) -> str:
    return f"{release[0]}.{release[1]:02d}" if release else "an unknown one"


def _gres(parsed: dict[str, Any]) -> str:
    """As Slurm writes it: {"shard:a": 8} is shard:a:8, and a job's with "indexes" has (IDX:0)."""
    return ",".join(
        f"{name}:{value['count']}({'IDX:' + value['indexes']})"
        if isinstance(value, dict)
        else f"{name}:{value}"
        for name, value in parsed.items()
    )


def _job(job: Any) -> dict[str, Any]:
    array = job.array_id
    layout = job.get_resource_layout_per_node() if job.allocated_nodes else {}
    return {
        "job_id": job.id,
        "array_job_id": array,
        "array_task_id": job.array_task_id if array else None,
        "array_task_string": job.array_tasks_waiting,
        "array_max_tasks": job.array_tasks_parallel,
        "user_id": job.user_id,
        "job_state": job.state,
        # Behind a comma stands what squeue says elsewhere: ReqNodeNotAvail, UnavailableNodes:n1
        "state_reason": job.state_reason.partition(",")[0],
        "priority": job.priority,
        "eligible_time": job.eligible_time,
        "partition": job.partition,
        "tres_per_node": _gres(job.gres_per_node),
        "required_nodes": job.required_nodes,
        "excluded_nodes": job.excluded_nodes,
        "features": ",".join(job.constraints or ()),
        "resv_name": job.reservation,
        "deadline": job.deadline,
        "het_job_id": job.heterogeneous_id,
        "cpus": job.cpus,
        "memory_per_node": job.memory_per_node,
        "memory_per_cpu": job.memory_per_cpu,
        "nodes": job.allocated_nodes,
        "gres_detail": [_gres(each["gres"]) for each in layout.values()],
        "comment": job.comment,
        "admin_comment": job.admin_comment,
        "time_limit": job.time_limit,
        "end_time": job.end_time,
        "name": job.name,
        "qos": job.qos,
        "account": job.account,
    }


def _node(node: Any) -> dict[str, Any]:
    state, *flags = node.state.split("+")
    return {
        "name": node.name,
        "state": state,
        "state_flags": flags,
        "partitions": node.partitions,
        "active_features": node.active_features,
        "gres": _gres(node.configured_gres),
        "gres_used": _gres(node.allocated_gres),
        "effective_cpus": node.effective_cpus,
        "cpus": node.total_cpus,
        "alloc_cpus": node.allocated_cpus,
        "real_memory": node.real_memory,
        "alloc_memory": node.allocated_memory,
        "comment": node.comment,
    }


def _text(what: str, entries: Iterable[dict[str, Any]]) -> Iterator[str]:
    yield f'{{"{what}": ['
    between = ""
    for entry in entries:
        yield between + json.dumps(entry)
        between = ",\n"
    yield "]}\n"


def main(what: str) -> None:
    """Print all jobs or all nodes. Whatever goes wrong ends it, and Slurm's commands are asked."""
    pyslurm: Any = importlib.import_module(NAME)  # it reads slurm.conf at once
    load, entry = {"jobs": (pyslurm.Jobs.load, _job), "nodes": (pyslurm.Nodes.load, _node)}[what]
    try:
        sys.stdout.writelines(_text(what, map(entry, load().values())))
    except Exception as fault:  # of any kind: its parsers raise what they meet
        sys.exit(f"{type(fault).__name__}: {fault}")
