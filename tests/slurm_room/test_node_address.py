"""Where a node is: by slurmctld, else by slurm.conf, else by its name."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from leased.slurm import slurmconf

CONF = "NodeName=gpu[1-2] NodeAddr=10.0.0.[1-2]\nNodeName=gpu3 NodeHostname=host3\nNodeName=gpu4\n"


def address(place: Path, name: str, said: str = "", conf: Path | None = None) -> str:
    """said: what scontrol prints; "": it fails."""
    scontrol = place / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho '{said}'\n" if said else "#!/bin/sh\nexit 1\n")
    scontrol.chmod(0o755)
    return asyncio.run(slurmconf.address_of(name, {"PATH": f"{place}:{os.environ['PATH']}"}, conf))


def test_slurmctld_knows_it_best(tmp_path: Path) -> None:
    said = "NodeName=gpu1 Arch=x86_64 NodeAddr=192.168.7.1 NodeHostName=gpu1 Version=23.11"
    assert address(tmp_path, "gpu1", said) == "192.168.7.1"


@pytest.mark.parametrize(
    ("name", "found"), [("gpu2", "10.0.0.2"), ("gpu3", "host3"), ("gpu4", "gpu4"), ("gpu9", "gpu9")]
)
def test_without_it_slurm_conf_does(tmp_path: Path, name: str, found: str) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(CONF)
    assert address(tmp_path, name, conf=conf) == found


def test_without_both_the_name_is_the_address(tmp_path: Path) -> None:
    assert address(tmp_path, "gpu1") == "gpu1"
    assert address(tmp_path, "gpu1", conf=tmp_path / "none") == "gpu1"


def test_what_is_no_name_is_asked_nobody(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="is no name of a node"):
        address(tmp_path, "--all")
