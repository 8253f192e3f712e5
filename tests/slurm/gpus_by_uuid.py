"""A private Slurm that names GPUs by their UUIDs in CUDA_VISIBLE_DEVICES: by Flags=env_uuid in
gres.conf from Slurm 26.05 on, and before whenever slurmd knows them, which was meant for MIG."""

from __future__ import annotations

from pathlib import Path

from tests.emugpu.server import EmulatedGpu
from tests.slurm.cluster import PrivateSlurm, slurm_version
from tests.slurm.conf import Layout


def gres_conf(layout: Layout) -> str:
    """gres.conf with a line for the shards of each GPU: else Slurm names it by its index."""
    flags = " Flags=env_uuid" if slurm_version() >= (26, 5) else ""
    lines = [
        f"Name=gpu File={file}{flags}\nName=shard Count={layout.shards_per_gpu} File={file}"
        for file in layout.gpu_files
    ]
    return "\n".join(["AutoDetect=off", *lines, ""])


def detect(slurm: PrivateSlurm) -> None:
    """slurmd learns of UUIDs by AutoDetect=, for which it has this file in its own tests."""
    devices = EmulatedGpu(Path(slurm.extra_env["EMUGPU_DIR"])).stats()["devices"]
    found = zip(slurm.layout.gpu_files, devices)
    lines = [f"(null)|64|0-63|(null)|{file}|{gpu['uuid']}|nvidia_gpu_env" for file, gpu in found]
    slurm.layout.etc.mkdir(parents=True)
    (slurm.layout.etc / "fake_gpus.conf").write_text("\n".join([*lines, ""]))
