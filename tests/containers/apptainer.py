"""What Apptainer's documents say it does with mounts and with the environment, with namespaces in
its place: `python -m tests.containers.apptainer [--cleanenv] [--containall] ROOT COMMAND...`.

From its user guide, "Bind Paths and Mounts" and "Environment and Metadata": APPTAINER_BIND and
APPTAINER_BINDPATH list what is mounted, with --contain as well; Singularity's names count where
Apptainer's are not set; the host's environment comes in but for a few variables, and with
--cleanenv does not; APPTAINERENV_NAME sets NAME in any case.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from tests.containers import namespaces
from tests.containers.namespaces import Mount

PREFIXES = ("APPTAINER", "SINGULARITY")
ALWAYS_IN = ("TERM", "http_proxy", "https_proxy", "no_proxy")
NEVER_IN = ("HOME", "PATH", "LD_LIBRARY_PATH")


def binds(env: Mapping[str, str]) -> list[Mount]:
    """What the variables name: SOURCE[:PLACE[:OPTIONS]], separated by commas."""
    texts = []
    for key in ("BIND", "BINDPATH"):
        values = [env[f"{prefix}_{key}"] for prefix in PREFIXES if f"{prefix}_{key}" in env]
        if len(set(values)) > 1:
            print(f"WARNING: {key} has two different values", flush=True)
        texts += values[:1]
    parts = [bind.split(":") for text in texts for bind in text.split(",") if bind]
    return [Mount(part[0], part[1] if len(part) > 1 else part[0]) for part in parts]


def environment(env: Mapping[str, str], clean: bool) -> dict[str, str]:
    """Of the program in the container."""
    inside = {
        name: value
        for name, value in env.items()
        if (name in ALWAYS_IN if clean else name not in NEVER_IN)
        and not name.startswith(tuple(f"{prefix}{x}_" for prefix in PREFIXES for x in ("", "ENV")))
    }
    for prefix in reversed(PREFIXES):
        start = f"{prefix}ENV_"
        inside |= {n.removeprefix(start): v for n, v in env.items() if n.startswith(start)}
    return inside | {"PATH": "/bin"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cleanenv", action="store_true")
    parser.add_argument("--containall", action="store_true")
    parser.add_argument("root", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    command = namespaces.command(
        chosen.root,
        chosen.command,
        mounts=binds(os.environ),
        env=environment(os.environ, chosen.cleanenv or chosen.containall),
        namespaces=namespaces.USERS + namespaces.PIDS * chosen.containall,
    )
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
