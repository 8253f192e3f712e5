"""Every command that the documents show is one that can be carried out.

Those of gpu-leasectl go through its own parser, values of --gpu-share through the grammar, options
of Slurm's commands through what their --help lists; units, packages, files and targets of make are
looked for where they come from. The batch scripts run in tests/slurm/test_recipes.py.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable

import pytest

from leased.base.errors import Refused
from leased.cli import ctl
from leased.config import options
from tests.conftest import ROOT
from tests.docs import documents

INSTALLED = "/usr/share/gpu-lease/"
OTHERS_UNITS = {"slurmd", "nvidia-persistenced"}
CONTROL = ROOT / "packaging" / "debian" / "control"
SPEC = ROOT / "packaging" / "gpu-lease.spec"
PACKAGES = {"python3-cffi", "python3-systemd", "python3-rich"}
# What they do is not ours to check; their names are.
FREE = {
    *(
        "cd",
        "dcgmi",
        "echo",
        "export",
        "git",
        "jupyter",
        "modprobe",
        "python",
        "rmmod",
        "sacct",
        "scontrol",
    ),
    *("squeue", "#!/bin/bash", "gpu-lease:", "sacctmgr", "scancel", "ulimit"),
}
Words = list[str]


def of_gpu_leasectl(words: Words) -> None:
    ctl.make_parser().parse_args(words)


@functools.cache
def options_of(command: str) -> frozenset[str]:
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed")
    with tempfile.NamedTemporaryFile("w", prefix="gpul-", suffix=".conf") as conf:
        conf.write("ClusterName=documents\nSlurmctldHost=localhost\n")
        conf.flush()
        env = os.environ | {"SLURM_CONF": conf.name}
        said = subprocess.run(
            [command, "--help"], check=True, capture_output=True, text=True, env=env
        ).stdout
    return frozenset(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", said)) | {"--gpu-share"}


def of_slurm(command: str) -> Callable[[Words], None]:
    def check(words: Words) -> None:
        for word in words:
            if not word.startswith("-"):
                break  # the job's own command
            name, _, value = word.partition("=")
            assert name in options_of(command), word
            if name == "--gpu-share" and value != "help":
                options.parse(value)

    return check


def of_systemctl(words: Words) -> None:
    verb, *rest = words
    assert verb in {"start", "stop", "restart", "reload", "enable", "disable", "status"}, verb
    for unit in rest:
        if unit == "--now" or unit in OTHERS_UNITS:
            continue
        name = unit if "." in unit else f"{unit}.service"
        places = [ROOT / "packaging" / name, ROOT / "packaging" / f"{name}.in"]
        assert any(place.is_file() for place in places), unit


def of_files(words: Words) -> None:
    """What is installed comes from slurm-conf/ or packaging/."""
    for word in words:
        name = word.removeprefix(INSTALLED)
        places = [ROOT / name, ROOT / "packaging" / name, ROOT / "packaging" / f"{name}.in"]
        assert name == word or any(place.is_file() for place in places), word


def of_make(words: Words) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert words[0] in targets, words


def of_apt(words: Words) -> None:
    assert words[0] in ("install", "remove")
    ours = [word for word in words[1:] if word.startswith("./")]
    theirs = [word for word in words[1:] if word not in ours]
    made = re.findall(r"^Package: (.+)$", CONTROL.read_text(), re.MULTILINE)
    if words[0] == "remove":
        assert theirs
        assert set(theirs) <= set(made)
        return
    assert set(theirs) <= PACKAGES
    assert all(name in (ROOT / "packaging" / "setup.sh").read_text() for name in theirs)
    assert set(ours) <= {f"./{name}_*.deb" for name in made}


def of_dnf(words: Words) -> None:
    assert words[0] in ("install", "remove")
    made = set(re.findall(r"^%package -n (.+)$", SPEC.read_text(), re.MULTILINE))
    assert set(words[1:]) in (made, {f"./{name}-*.rpm" for name in made}), words


def of_eval(words: Words) -> None:
    for inner in re.findall(r"\$\((.*?)\)", " ".join(words)):
        check_line(inner)


def of_journalctl(words: Words) -> None:
    of_systemctl(["start", *words[words.index("-u") + 1 :]])


def of_sbatch_line(words: Words) -> None:
    of_slurm("sbatch")(words)


CHECKS: dict[str, Callable[[Words], None]] = {
    "gpu-leasectl": of_gpu_leasectl,
    **{name: of_slurm(name) for name in ("sbatch", "srun", "salloc")},
    "#SBATCH": of_sbatch_line,
    "systemctl": of_systemctl,
    **dict.fromkeys(("install", "ln", "rm"), of_files),
    "make": of_make,
    "apt": of_apt,
    "dnf": of_dnf,
    "eval": of_eval,
    "journalctl": of_journalctl,
}


def check_line(line: str) -> None:
    """AssertionError, SystemExit, Refused: it cannot be carried out."""
    told = line if line.startswith("#") else re.split(r"\s#\s|\s>\s", line)[0]
    for part in re.split(r" && |; ", told):
        words = part.split() if part.startswith("eval") else shlex.split(part)
        if not words:
            continue
        check = CHECKS.get(words[0])
        assert check or words[0] in FREE, f"an unknown command: {line}"
        if check:
            check(words[1:])


@pytest.mark.parametrize("name", documents.commands())
def test_commands_can_be_carried_out(name: str) -> None:
    for line in documents.commands()[name]:
        check_line(line)


@pytest.mark.parametrize(
    "line",
    [
        "gpu-leasectl dance",
        "gpu-leasectl set --device 0 lock",
        "sbatch --gres=shard:1 --gpu-share=tq:soon job.sh",
        "sbatch --gress=shard:1 job.sh",
        "#SBATCH --gpu-share=spin:1",
        "systemctl enable gpu-lease",
        f"install {INSTALLED}slurm-conf/gone.conf /etc",
        "make nothing",
        "apt install something-else",
        "apt remove something-else",
        "dnf remove gpu-leased something-else",
        'eval "$(gpu-leasectl envy)"',
        "gpuctl status",
    ],
)
def test_a_command_that_cannot_be_run_is_found(line: str) -> None:
    with pytest.raises((AssertionError, SystemExit, Refused)):
        check_line(line)


@pytest.mark.parametrize("line", documents.in_sentences("docs/troubleshooting.md"))
def test_a_command_in_a_sentence_can_be_carried_out(line: str) -> None:
    command, *words = line.split()
    if command == "gpu-leasectl" and len(words) == 1:  # its name alone
        with pytest.raises(SystemExit) as ended:
            ctl.make_parser().parse_args([*words, "--help"])
        assert ended.value.code == 0
    else:
        check_line(line)


def test_commands_are_found() -> None:
    found = documents.commands()
    assert len(found["docs/admin.md"]) > 30
    assert (
        "make demo     # real Slurm, real jobs, one shared GPU: about 5 minutes"
        in (found["README.md"])
    )
    assert len(documents.scripts(ROOT / "docs" / "user.md")) >= 7
    assert found["gpu-share(7)"]
