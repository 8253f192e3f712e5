"""The manual pages, each made of what its program itself is made of."""

from __future__ import annotations

from _gpulease import ffi, lib

from leased.cli import ctl
from leased.cli.subcommand import MEANINGS
from leased.config import config, documents
from leased.copies import keeper
from leased.manual import arguments, roff
from leased.manual.roff import Page
from leased.metrics import exporter
from leased.node import daemon
from leased.placer import service

# -- gpu-leasectl(1) ----------------------------------------------------------------

ABOUT_LEASECTL = """\
The daemon `gpu-leased` of this node is asked on its sockets: `mine`, `env`, `park` and `unpark`
on tenant.sock, which every user may open, the others on admin.sock. `check`, `plot`, `report` and
`simulate` work without it.

What a command prints is for people; with `--json` it is one JSON value, whose fields
docs/gpu-leasectl.md describes. `--help` explains each command. Faults are sentences on standard
error that name the remedy.
"""
# Every command has them, and the description says so.
OF_EACH = frozenset({"-h", "--json"})


def gpu_leasectl() -> Page:
    """Of the subcommands as --help has them."""
    parser = ctl.make_parser()
    made = Page("gpu-leasectl", 1, (parser.description or "").rstrip("."))
    made.section("synopsis")
    made.usage("gpu-leasectl [--config FILE] [--socket FILE] COMMAND [ARGUMENT ...]")
    made.section("description")
    made.paragraphs(ABOUT_LEASECTL)
    made.section("options")
    arguments.write_options(made, parser, frozenset())
    made.section("commands")
    for name, command in arguments.subparsers(parser).items():
        made.subsection(name)
        made.usage(arguments.usage(command))
        made.paragraph(_sentence(command.description or ""))
        arguments.write_options(made, command, OF_EACH)
        if command.epilog and "\n" in command.epilog:
            made.example(command.epilog)
        elif command.epilog:
            made.paragraph(command.epilog)
    made.section("exit status")
    for status, meaning in MEANINGS.items():
        made.item(f"\\fB{status.value}\\fR", meaning)
    made.terms("files", {str(config.DEFAULT_PATH): "The configuration of the node's daemon."})
    made.section("see also")
    made.paragraph(
        "`gpu-leased`(8), `gpu-leased.toml`(5), `gpu-share`(7), `gpu-lease-placer`(8), `sacct`(1)"
    )
    return made


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


# -- gpu-leased.toml(5) -------------------------------------------------------------


def gpu_leased_toml() -> Page:
    """Of the table of keys, as docs/configuration.md."""
    made = Page("gpu-leased.toml", 5, "the configuration of gpu-leased")
    made.section("synopsis")
    made.paragraph(f"`{config.DEFAULT_PATH}`")
    made.section("description")
    for text in documents.introduction():
        made.paragraph(text)
    for section, about in config.SECTIONS.items():
        made.section(f"[{section}]")
        made.paragraph(about)
        for key in config.of_section(section).values():
            made.item(roff.words(f"`{key.name}` = {key.kind.words}"), key.about)
            made.continued(f"Default: `{documents.toml(key.default)}`")
    made.section("see also")
    made.paragraph("`gpu-leased`(8), `gpu-leasectl`(1), `gpu-share`(7), `gpu-lease-placer`(8)")
    return made


# -- gpu-share(7) -------------------------------------------------------------------

ABOUT_SHARE = """\
A job with a shard (`--gres=shard:1`) shares its GPU with other jobs. Each of them sees the whole
memory of the GPU. While what they have in it fits together they run side by side; when it does
not, the GPU is leased to one of them at a time. The program needs no change: a process that has
no lease waits inside its next kernel launch or copy.

`--gpu-share` says how a job shares. Without it the job gets the site's defaults, or what the
environment variable `GPU_SHARE` says. Jobs without a shard are touched by neither.
"""
REFUSED = (
    "`sbatch`, `salloc` and `srun` refuse what can be known before the job exists, in one sentence "
    "that names the remedy: bad syntax, values outside the site's limits, `--gpu-share` without a "
    "shard or with `--exclusive`, shards on several nodes where the site has not turned that on. "
    "What only the node knows fails the job there, with one line on the standard error of each "
    "task."
)
ENVIRONMENT = {
    "GPU_SHARE": "The same text as that of `--gpu-share`, for jobs with a shard that do not give "
    "the option.",
}
EXAMPLES = {
    "A batch job that shares a GPU as the site has it": "sbatch --gres=shard:1 job.sh",
    "A training job that takes long turns, and at most half of the memory": (
        "sbatch --gres=shard:1 --gpu-share=tq:2m,mem:50% train.sh"
    ),
    "A notebook with short turns": "srun --gres=shard:1 --gpu-share=tq:5s --pty jupyter lab",
    "Who has the GPU, and why does my job wait?": "gpu-leasectl mine",
    "What did my jobs have of their GPUs?": "sacct -o JobID,State,SystemComment%200",
}


def gpu_share() -> Page:
    """The option of sbatch, salloc and srun, as its grammar describes it."""
    made = Page("gpu-share", 7, "the option of sbatch, salloc and srun for jobs that share a GPU")
    head, rows, tail = parts_of_help()
    made.section("synopsis")
    made.usage("sbatch|salloc|srun --gres=shard:N " + head)
    made.section("description")
    made.paragraphs(ABOUT_SHARE)
    made.section("keys")
    made.paragraph(
        "In any order, with commas between them. Those that are left out are the site's: "
        f"`{config.of_section('defaults')['options'].default}`, if it has not changed them."
    )
    made.example(rows)
    made.paragraph(tail)
    made.paragraph("`--gpu-share=help` prints the same.")
    made.section("what is refused")
    made.paragraph(REFUSED)
    made.terms("environment", ENVIRONMENT)
    made.section("examples")
    for about, command in EXAMPLES.items():
        made.paragraph(f"{about}{'' if about.endswith('?') else ':'}")
        made.example(command)
    made.section("see also")
    made.paragraph(
        "`gpu-leasectl`(1), `gpu-leased`(8), `gpu-leased.toml`(5), `gpu-lease-placer`(8), "
        "`sbatch`(1), `gres.conf`(5)"
    )
    return made


def parts_of_help() -> tuple[str, str, str]:
    """What --gpu-share=help prints: the option, its keys (which are indented), and the rest."""
    lines = ffi.string(lib.gl_options_help()).decode().splitlines()
    rows = [line for line in lines if line.startswith(" ")]
    return lines[0], "\n".join(rows), " ".join(lines[1 + len(rows) :])


# -- gpu-leased(8) ------------------------------------------------------------------

ABOUT_LEASED = """\
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
SIGNALS_OF_LEASED = {
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
FILES_OF_LEASED = {
    str(config.DEFAULT_PATH): "The configuration; all of its keys have defaults.",
    "/run/gpu-leased": "tenant.sock and admin.sock: `daemon.runtime_dir`.",
    "/var/lib/gpu-leased": "usage.db, with usage and settings: `daemon.state_dir`.",
}


def gpu_leased() -> Page:
    """The daemon, its helpers and their units."""
    programs = [module.make_parser() for module in (daemon, keeper, exporter)]
    made = Page("gpu-leased", 8, "the daemon that leases the GPUs of a node to Slurm's jobs")
    made.section("synopsis")
    for parser in programs:
        made.usage(arguments.usage(parser))
    made.section("description")
    made.paragraphs(ABOUT_LEASED)
    made.section("options")
    for parser in programs:
        made.subsection(parser.prog)
        arguments.write_options(made, parser, frozenset())
    made.terms("signals", SIGNALS_OF_LEASED)
    made.terms("units", UNITS)
    made.terms("files", FILES_OF_LEASED)
    made.section("see also")
    made.paragraph(
        "`gpu-leasectl`(1), `gpu-leased.toml`(5), `gpu-share`(7), `gpu-lease-placer`(8), "
        "`slurmd`(8)"
    )
    return made


# -- gpu-lease-placer(8) ------------------------------------------------------------

ABOUT_PLACER = """\
`gpu-lease-placer` runs on the host of slurmctld, as SlurmUser, and on one host of a cluster alone.
Jobs that have labels or request a share of a GPU (`--gpu-share`) are put off by gpu_share.lua when
they are submitted. The placer looks at Slurm's jobs and nodes, finds on which GPU each fits, binds
the job to that node and lets it start. While it fits nowhere, the job's Comment says why. For
a job that has waited for long a GPU is kept (`placer.reserve_after`).

It holds no job: it moves begin times on, a few minutes at a time. Without the placer each job
begins by itself when its time is over, and jobs that are submitted then are not put off.
"""
SIGNALS_OF_PLACER = {
    "SIGTERM": "The placer ends. Jobs that wait for it may begin 20 s later, unless it is back "
    "by then.",
}
FILES_OF_PLACER = {
    str(config.DEFAULT_PATH): "The configuration; its table `[placer]` is this program's.",
    "/run/gpu-lease-placer/alive": "Its sign of life, which gpu_share.lua reads: in "
    "`placer.runtime_dir`.",
    "/var/lib/gpu-lease-placer/jobs.json": "What it remembers of jobs: in `placer.state_dir`.",
}


def gpu_lease_placer() -> Page:
    """Where pending jobs with labels or shares fit."""
    parser = service.make_parser()
    made = Page("gpu-lease-placer", 8, "lets Slurm's jobs with labels start where they fit")
    made.section("synopsis")
    made.usage(arguments.usage(parser))
    made.section("description")
    made.paragraphs(ABOUT_PLACER)
    made.section("options")
    arguments.write_options(made, parser, frozenset())
    made.terms("signals", SIGNALS_OF_PLACER)
    made.terms("files", FILES_OF_PLACER)
    made.section("see also")
    made.paragraph(
        "`gpu-leasectl`(1), `gpu-leased.toml`(5), `gpu-share`(7), `gpu-leased`(8), `slurmctld`(8)"
    )
    return made
