"""gpu-lease-placer(8): where pending jobs with labels or shares fit."""

from __future__ import annotations

from leased.config import config
from leased.manual import arguments, roff
from leased.manual.roff import Page
from leased.placer import service

ABOUT = """\
`gpu-lease-placer` runs on the host of slurmctld, as SlurmUser, and on one host of a cluster alone.
Jobs that have labels or request a share of a GPU (`--gpu-share`) are put off by gpu_share.lua when
they are submitted. The placer looks at Slurm's jobs and nodes, finds on which GPU each fits, binds
the job to that node and lets it start. While it fits nowhere, the job's Comment says why. For
a job that has waited for long a GPU is kept (`placer.reserve_after`).

It holds no job: it moves begin times on, a few minutes at a time. Without the placer each job
begins by itself when its time is over, and jobs that are submitted then are not put off.
"""
SIGNALS = {
    "SIGTERM": "The placer ends. Jobs that wait for it may begin 20 s later, unless it is back "
    "by then.",
}
FILES = {
    str(config.DEFAULT_PATH): "The configuration; its table `[placer]` is this program's.",
    "/run/gpu-lease-placer/alive": "Its sign of life, which gpu_share.lua reads: in "
    "`placer.runtime_dir`.",
    "/var/lib/gpu-lease-placer/jobs.json": "What it remembers of jobs: in `placer.state_dir`.",
}


def page() -> Page:
    parser = service.make_parser()
    made = Page("gpu-lease-placer", 8, "lets Slurm's jobs with labels start where they fit")
    made.section("synopsis")
    made.usage(arguments.usage(parser))
    made.section("description")
    made.paragraphs(ABOUT)
    made.section("options")
    arguments.write_options(made, parser, frozenset())
    for title, items in (("signals", SIGNALS), ("files", FILES)):
        made.section(title)
        for term, text in items.items():
            made.item(roff.words(f"`{term}`"), text)
    made.section("see also")
    made.paragraph(
        "`gpu-leasectl`(1), `gpu-leased.toml`(5), `gpu-share`(7), `gpu-leased`(8), `slurmctld`(8)"
    )
    return made
