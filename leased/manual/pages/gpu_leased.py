"""gpu-leased(8): the daemon, its helpers and their units."""

from __future__ import annotations

from leased.config import config
from leased.copies import keeper
from leased.manual import arguments, roff
from leased.manual.roff import Page
from leased.metrics import exporter
from leased.node import daemon

ABOUT = """\
`gpu-leased` runs on each node whose GPUs are shared, one for the node, and as root. Jobs with a
shard (`--gres=shard:1`) register with it through the SPANK plugin gpu_share.so; the library
libgpulease.so in their processes asks it for leases. While what the jobs of a GPU have in its
memory fits together they run side by side, else they take turns of a quantum.

It writes what each job had of its GPUs into the job's SystemComment in Slurm's accounting.
Leases, usage and settings outlive it: it can be restarted under running jobs.

`gpu-leased-copies` keeps host memory for what leaves a GPU, so that this memory is charged to no
job and outlives the daemon. `gpu-leased-metrics` shows Prometheus what the daemon knows, where
`metrics.listen` says so.
"""
SIGNALS = {
    "SIGHUP": "The configuration is read again, as `systemctl reload gpu-leased` does. A file that "
    "is at fault changes nothing, and the journal says why.",
    "SIGTERM": "The daemon ends. Holders go on to compute, and waiters wait for the next start.",
}
UNITS = {
    "gpu-leased.service": "The daemon. Enable it; it brings its sockets.",
    "gpu-leased.socket, gpu-leased-admin.socket": "Where jobs connect, and where root does. To "
    "stop the daemon for good, stop these as well: the next client would start it again.",
    "gpu-leased-copies.service, gpu-leased-copies.socket": "The keeper of host memory.",
    "gpu-leased-metrics.service": "The metrics. It is enabled by itself.",
}
FILES = {
    str(config.DEFAULT_PATH): "The configuration; all of its keys have defaults.",
    "/run/gpu-leased": "tenant.sock and admin.sock: `daemon.runtime_dir`.",
    "/var/lib/gpu-leased": "usage.db, with usage and settings: `daemon.state_dir`.",
}


def page() -> Page:
    programs = [module.make_parser() for module in (daemon, keeper, exporter)]
    made = Page("gpu-leased", 8, "the daemon that leases the GPUs of a node to Slurm's jobs")
    made.section("synopsis")
    for parser in programs:
        made.usage(arguments.usage(parser))
    made.section("description")
    made.paragraphs(ABOUT)
    made.section("options")
    for parser in programs:
        made.subsection(parser.prog)
        arguments.write_options(made, parser, frozenset())
    for title, items in (("signals", SIGNALS), ("units", UNITS), ("files", FILES)):
        made.section(title)
        for term, text in items.items():
            made.item(roff.words(f"`{term}`"), text)
    made.section("see also")
    made.paragraph(
        "`gpu-leasectl`(1), `gpu-leased.toml`(5), `gpu-share`(7), `gpu-lease-placer`(8), "
        "`slurmd`(8)"
    )
    return made
