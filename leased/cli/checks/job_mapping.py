"""check: the files that tell dcgm-exporter which jobs have which GPU, where the site wants them."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from pathlib import Path

from leased.cli.checks.finding import OK, WARNING, Finding, Site
from leased.metrics import job_mapping

FOLLOWS_S = 6.0  # the files of a job are there so soon after its begin
UNIT = "gpu-leased-metrics"
START = f"run systemctl enable --now {UNIT}, and see its journal"


def findings(site: Site) -> Iterator[Finding]:
    directory = site.config.metrics.job_mapping_dir
    if directory is None:
        words = "metrics.job_mapping_dir is empty: dcgm-exporter is told of no jobs"
        yield Finding("job-mapping", OK, words)
        return
    what = f"metrics.job_mapping_dir {directory}"
    try:
        there = directory.stat()
    except FileNotFoundError:
        yield Finding("job-mapping", WARNING, f"{what} does not exist", START)
        return
    if not stat.S_ISDIR(there.st_mode):
        yield Finding(
            "job-mapping", WARNING, f"{what} is not a directory", "name another directory"
        )
    elif job_mapping.others_may_write(there):
        words = f"others may write to {what}: {UNIT} writes nothing there"
        yield Finding(
            "job-mapping", WARNING, words, f"run chown root {directory}; chmod 755 {directory}"
        )
    elif there.st_mode & 0o005 != 0o005:
        words = f"{what} is not open to everybody: dcgm-exporter may not read it"
        yield Finding("job-mapping", WARNING, words, f"run chmod 755 {directory}")
    elif site.status is not None and job_mapping.wanted(site.status) and not _kept(directory):
        words = f"jobs share GPUs, and {UNIT} has written nothing to {what}"
        yield Finding("job-mapping", WARNING, words, START)
    else:
        yield Finding("job-mapping", OK, f"{what} is there")


def _kept(directory: Path) -> bool:
    """Whether the exporter's own list of its files is there, now or soon."""
    until = time.monotonic() + FOLLOWS_S
    while not (directory / job_mapping.OURS).exists():
        if time.monotonic() >= until:
            return False
        time.sleep(0.1)
    return True
