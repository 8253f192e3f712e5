"""What gres.conf and Gres= come to, by our reading and by slurmd of the installed release."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from leased.slurm import gres_conf, node_gres
from leased.slurm.node_gres import Detected, NodeGres, SlurmGpu

NODE = "n1"
# By PCI address nvidia1 comes before nvidia0. So fake_gpus.conf has them, which slurmd takes for
# what its AutoDetect= finds.
FAKE = "nvidia_h200|2|0-1|0,-1|{dev}/nvidia0\nnvidia_h200|2|0-1|-1,0|{dev}/nvidia1\n"


def gpu(number: int, shards: int, type_: str = "", *, placed: bool = False) -> SlurmGpu:
    return SlurmGpu(f"/dev/nvidia{number}", type_, placed, shards)


TYPED = "Name=gpu Type=x File=/dev/nvidia[0-1]\n"
UNEVEN = "Name=shard Count=3 File=/dev/nvidia0\nName=shard Count=4 File=/dev/nvidia1"
OF_NODE = f"NodeName={NODE} Name=gpu File=/dev/nvidia0\n"
SHARDS = "NodeName=other Name=gpu File=/dev/nvidia2\nName=shard Count=8"
DETECTED = [gpu(1, 4, placed=True), gpu(0, 4, placed=True)]
PLAIN = "Name=gpu File=/dev/nvidia[0-1]\n"
# gres.conf, Gres= of slurm.conf: the GPUs by Slurm's index
FORMS: dict[str, tuple[str, str, list[SlurmGpu]]] = {
    "types in gres.conf alone": (
        TYPED + "Name=shard Count=12",
        *("gpu:2,shard:12", [gpu(0, 6), gpu(1, 6)]),
    ),
    "types in both": (
        TYPED + "Name=shard Count=12",
        *("gpu:X:2,shard:12", [gpu(0, 6, "x"), gpu(1, 6, "x")]),
    ),
    "types in slurm.conf's order": (
        "Name=gpu Type=a File=/dev/nvidia[0-1]\nName=gpu Type=b File=/dev/nvidia[2-3]",
        *("gpu:b:2,gpu:a:1,shard:6", [gpu(2, 2, "b"), gpu(3, 2, "b"), gpu(0, 2, "a")]),
    ),
    "files of shards with a range": (
        PLAIN + "Name=shard Count=8 File=/dev/nvidia[0-1]",
        *("gpu:2,shard:8", [gpu(0, 4), gpu(1, 4)]),
    ),
    "several lines of shards": (
        PLAIN + UNEVEN,
        *("gpu:2,shard:7", [gpu(0, 3), gpu(1, 4)]),
    ),
    "a GPU without shards": (
        PLAIN + "Name=shard Count=4 File=/dev/nvidia1",
        *("gpu:2,shard:4", [gpu(0, 0), gpu(1, 4)]),
    ),
    "a count of zero for a file": (
        PLAIN + "Name=shard Count=0 File=/dev/nvidia0\nName=shard Count=8 File=/dev/nvidia1",
        *("gpu:2,shard:8", [gpu(0, 0), gpu(1, 8)]),
    ),
    "a count of zero": (PLAIN + "Name=shard Count=0", "gpu:2,shard:0", [gpu(0, 0), gpu(1, 0)]),
    "an uneven count": (PLAIN + "Name=shard Count=7", "gpu:2,shard:7", [gpu(0, 3), gpu(1, 4)]),
    "no line of shards": (PLAIN, "gpu:2,shard:8", [gpu(0, 4), gpu(1, 4)]),
    "more than in slurm.conf": (
        "Name=gpu Files=/dev/nvidia[2,0-1]\nName=shard Count=8 File=/dev/nvidia[0-2]",
        *("gpu:2,shard:6", [gpu(2, 2), gpu(0, 2)]),
    ),
    "lines of nodes come last, of others not at all": (
        OF_NODE + "Name=gpu Cores=0 File=/dev/nvidia1\n" + SHARDS,
        *("gpu:2,shard:8", [gpu(1, 4, placed=True), gpu(0, 4)]),
    ),
    "AutoDetect": ("AutoDetect=nvml", "gpu:2,shard:8", DETECTED),
    "AutoDetect of some": ("AutoDetect=nvml", "gpu:1,shard:4", [gpu(0, 4, placed=True)]),
    "AutoDetect and a type": (
        "AutoDetect=nvml\n" + UNEVEN,
        *("gpu:H200:2,shard:7", [gpu(1, 4, "h200", placed=True), gpu(0, 3, "h200", placed=True)]),
    ),
    "AutoDetect and files": (
        "AutoDetect=nvml\nName=gpu File=/dev/nvidia[1-2]",
        *("gpu:2,shard:8", [gpu(1, 4, placed=True), gpu(2, 4)]),
    ),
    "AutoDetect for all nodes, and off here": (
        f"NodeName={NODE} AutoDetect=off\nAutoDetect=nvml\n" + PLAIN + "Name=shard Count=2",
        *("gpu:2,shard:2", [gpu(0, 1), gpu(1, 1)]),
    ),
}  # fmt: skip
# What slurmd stops at, and a part of why, by our reading
STOPS: dict[str, tuple[str, str, str]] = {
    "fewer shards": (PLAIN + "Name=shard Count=6", "gpu:2,shard:8", "shards are counted several"),
    "a count of zero shards": (
        PLAIN + "Name=shard Count=0",
        *("gpu:2,shard:8", "shards are counted several times"),
    ),
    "a count of zero GPUs": (
        PLAIN + "Name=gpu Count=0 File=/dev/nvidia2\nName=shard Count=8",
        *("gpu:2,shard:8", "Count=0 does not fit"),
    ),
    "files that lack shards": (
        PLAIN + "Name=shard Count=8 File=/dev/nvidia[0-1]",
        *("gpu:2,shard:16", "shards are counted several times"),
    ),
    "types of shards alone": (
        "Name=gpu Type=a File=/dev/nvidia0\nName=gpu Type=b File=/dev/nvidia1",
        *("gpu:a:1,gpu:b:1,shard:a:4,shard:b:4", "shards are counted several times"),
    ),
    "a count of GPUs": ("Name=gpu Count=2 File=/dev/nvidia[0-2]", "gpu:2,shard:8", "does not fit"),
    "a file here and there": (
        "Name=gpu Type=x File=/dev/nvidia0\nName=gpu Type=x Count=1",
        *("gpu:2,shard:8", "some lines of gpu have File= and others do not"),
    ),
    "a type here and there": (
        TYPED,
        *("gpu:x:1,gpu:1,shard:8", "some gpu of Gres= in slurm.conf have a type"),
    ),
    "no device files": ("Name=shard Count=8", "gpu:2,shard:8", "no GPU has a device file"),
}


def write(folder: Path, gres: str, text: str) -> Path:
    """A folder of Slurm's files, with device files of their own."""
    dev = folder / "dev"
    dev.mkdir()
    for number in range(4):
        (dev / f"nvidia{number}").touch()
    (folder / "slurm.conf").write_text(
        # Later releases look for munged before they look at their files.
        "AuthType=auth/none\n"
        "ClusterName=x\nSlurmctldHost=localhost\nGresTypes=gpu,shard\nSelectType=select/cons_tres\n"
        f"SlurmdSpoolDir={folder}\nNodeName={NODE} NodeHostname={socket.gethostname()} CPUs=2 "
        f"Gres={gres}\n"
    )
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    (folder / "gres.conf").write_text(text.replace("/dev/", f"{dev}/") + "\n")
    if "AutoDetect=nvml" in text and "AutoDetect=off" not in text:
        (folder / "fake_gpus.conf").write_text(FAKE.format(dev=dev))
    return dev


def by_slurmd(folder: Path) -> NodeGres:
    found = node_gres.ask(NODE, None, {"SLURM_CONF": str(folder / "slurm.conf")})
    assert found is not None, "slurmd of this machine says nothing"
    return found


def by_us(folder: Path, gres: str) -> NodeGres:
    detected = [Detected(f"{folder}/dev/nvidia{n}", "NVIDIA H200") for n in (1, 0)]
    return node_gres.merged(gres_conf.gres_of(folder / "gres.conf", NODE), gres, detected)


@pytest.fixture(autouse=True)
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Those of this machine are left alone: slurmd is told so by cgroup.conf."""
    monkeypatch.setattr(node_gres, "CGROUPS", tmp_path)
    return tmp_path


@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_gres_conf_is_read_as_slurmd_reads_it(short_dir: Path, form: str) -> None:
    text, gres, gpus = FORMS[form]
    dev = write(short_dir, gres, text)
    wanted = NodeGres(
        tuple(SlurmGpu(x.file.replace("/dev", str(dev)), x.type, x.placed, x.shards) for x in gpus)
    )
    assert by_slurmd(short_dir) == wanted
    assert by_us(short_dir, gres) == wanted


@pytest.mark.parametrize("form", STOPS)
def test_what_slurmd_stops_at_is_told(short_dir: Path, form: str) -> None:
    text, gres, why = STOPS[form]
    write(short_dir, gres, text)
    assert by_slurmd(short_dir).stops
    assert why in by_us(short_dir, gres).stops


def test_what_is_detected_is_not_guessed(short_dir: Path) -> None:
    write(short_dir, "gpu:2,shard:8", "AutoDetect=nvml")
    said = gres_conf.gres_of(short_dir / "gres.conf", NODE)
    assert node_gres.merged(said, "gpu:2,shard:8").unknown


def test_a_node_that_slurm_conf_does_not_have(short_dir: Path) -> None:
    """As slurmd -Z starts one, with a name that has a domain."""
    write(short_dir, "gpu:1", PLAIN)
    path = short_dir / "slurm.conf"
    path.write_text(path.read_text() + "MaxNodeCount=8\n")
    found = node_gres.ask("n2.example.org", "gpu:2,shard:7", {"SLURM_CONF": str(path)})
    assert found is not None
    assert [gpu.shards for gpu in found.gpus] == [3, 4]


def test_where_there_is_no_slurmd_it_says_nothing(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_gres, "SLURMD", ("/nonexistent/slurmd",))
    write(short_dir, "gpu:2,shard:8", PLAIN)
    assert node_gres.ask(NODE, None, {"SLURM_CONF": str(short_dir / "slurm.conf")}) is None


def test_a_slurmd_that_has_not_run_is_not_asked(short_dir: Path, cgroups: Path) -> None:
    """It would make its cgroup."""
    write(short_dir, "gpu:2,shard:8", PLAIN)
    env = {"SLURM_CONF": str(short_dir / "slurm.conf")}
    (cgroups / "cgroup.controllers").touch()
    assert node_gres.ask(NODE, None, env) is None
    (cgroups / "system.slice" / "n1_slurmstepd.scope").mkdir(parents=True)
    assert node_gres.ask(NODE, None, env) is not None


def test_slurmd_of_a_later_release() -> None:
    said = (
        "slurmd: Gres Name=gpu Type=h200 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 Cores=0-1 "
        "CoreCnt=2 Links=-1,0 Flags=HAS_FILE,HAS_TYPE,ENV_NVML\n"
        "slurmd: Gres Name=shard Type=h200 Count=4 Index=0 ID=1918986455 File=/dev/nvidia0 "
        "Cores=0-1 CoreCnt=2 Links=(null) Flags=HAS_FILE,HAS_TYPE,SHARED\n"
    )
    assert node_gres.read(said) == NodeGres((gpu(0, 4, "h200", placed=True),))


def test_why_slurmd_of_a_later_release_stops() -> None:
    said = (
        "[2026-11-30T13:16:36.946] error: cgroup namespace 'memory' not mounted. aborting\n"
        "[2026-11-30T13:16:36.950] fatal: Invalid GRES record for gpu, count does not match File\n"
    )
    stops = "Invalid GRES record for gpu, count does not match File"
    assert node_gres.read(said) == NodeGres(stops=stops)
