"""check: whether slurmctld refuses what cannot share (slurm-conf/job_submit.lua)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from leased import __version__
from leased.base import text_file
from leased.cli.checks.finding import FAULT, WARNING, Finding, Site, finding

MOST_BYTES = 8 << 20  # of a script
SCRIPT, RULES = "job_submit.lua", "gpu_share.lua"
RELEASE = re.compile(rb'release = "([!-~]{1,40})"')
# Without it the plugin refuses the same in sbatch, salloc and srun.
COSTS = "what slurmrestd and hosts without the plugin submit is refused on the node only"


def findings(site: Site) -> Iterator[Finding]:
    """On the host of slurmctld."""
    folder = site.slurm.folder
    plugins = site.slurm.plugins("jobsubmitplugins", "job_submit")
    if "lua" not in plugins:
        words = f"JobSubmitPlugins of slurm.conf lacks lua: {COSTS}"
        remedy = f"put {SCRIPT} and {RULES} beside slurm.conf, and write JobSubmitPlugins=lua"
        yield Finding("job-submit", WARNING, words, remedy)
        return
    if folder is None:
        words = "slurm.conf is not on this host, so job_submit.lua is not checked"
        yield Finding("job-submit", WARNING, words, "run this check on the host of slurmctld")
        return
    script, rules = folder / SCRIPT, folder / RULES
    if not script.is_file():
        words = f"there is no {script}, which JobSubmitPlugins=lua needs"
        yield Finding("job-submit", FAULT, words, f"put {SCRIPT} and {RULES} there")
    elif b"gpu_share" not in text_file.read(script, MOST_BYTES):
        words = f"{script} does not ask {RULES}: {COSTS}"
        yield Finding("job-submit", WARNING, words, f"add what slurm-conf/{SCRIPT} has")
    elif not rules.is_file():
        words = f"there is no {rules}, which {SCRIPT} asks: {COSTS}"
        yield Finding("job-submit", WARNING, words, f"put {RULES} of this release there")
    else:
        found = RELEASE.search(text_file.read(rules, MOST_BYTES))
        release = found[1].decode() if found else "unknown"
        words = f"{rules} is of release {release}, this gpu-leasectl of {__version__}"
        remedy = f"put {RULES} of this release there, and touch {script}"
        wrong = "" if release == __version__ else words
        yield finding("job-submit", wrong, remedy, "slurmctld refuses what cannot share")
