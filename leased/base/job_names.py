"""How Slurm names jobs: 7; 7_3, a task of an array; 12+1, a part of a heterogeneous job.

Slurm has a number for each of them besides, which sacct calls JobIDRaw and which SLURM_JOB_ID is
inside the job. We count by that number, and show and take the names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

NAME = re.compile(r"([0-9]{1,10})([_+][0-9]{1,10})?")
LAST = 2**32 - 1  # of Slurm's numbers


def is_name(text: str) -> bool:
    """Whether a job can have this name."""
    found = NAME.fullmatch(text)
    return found is not None and 0 < int(found[1]) <= LAST


def split(text: str) -> tuple[str, str]:
    """A job's name and a step's, of 7_3.batch; "": no step is named."""
    job, _, step = text.partition(".")
    return job, step


def whole(name: str) -> str:
    """The name of the array or heterogeneous job that this is a part of; else its own."""
    return re.split("[_+]", name)[0]


def means(typed: str | int, job_id: int, name: str) -> bool:
    """Whether this means that job. A number is the job's own. A text is as for Slurm's commands:
    the number of an array means all its tasks, and a job's own number is understood too."""
    return typed == job_id if isinstance(typed, int) else typed in (name, whole(name), str(job_id))


def own(env: Mapping[str, str]) -> list[str]:
    """The names of the job that a process with this environment is in: none outside of any. The
    first one means this job alone; a batch script that another job has submitted may have the
    others from there."""
    number = env.get("SLURM_JOB_ID", "")
    array, task = env.get("SLURM_ARRAY_JOB_ID", ""), env.get("SLURM_ARRAY_TASK_ID", "")
    if array and task:
        # The last task has the array's number, which means all of them to Slurm's commands.
        return [f"{array}_{task}"] if number == array else [number, f"{array}_{task}"]
    if "SLURM_HET_SIZE" in env:
        return [number, f"{number}+0"]  # a batch script is in the first part
    return [number] if number else []
