"""gpu-share(7): the option of sbatch, salloc and srun, as its grammar describes it."""

from __future__ import annotations

from _gpulease import ffi, lib

from leased.config import config
from leased.manual import roff
from leased.manual.roff import Page

ABOUT = """\
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


def page() -> Page:
    made = Page("gpu-share", 7, "the option of sbatch, salloc and srun for jobs that share a GPU")
    head, rows, tail = parts_of_help()
    made.section("synopsis")
    made.usage("sbatch|salloc|srun --gres=shard:N " + head)
    made.section("description")
    made.paragraphs(ABOUT)
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
    made.section("environment")
    for name, text in ENVIRONMENT.items():
        made.item(roff.words(f"`{name}`"), text)
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
