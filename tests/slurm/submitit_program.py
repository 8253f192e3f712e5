"""A training that submitit submits: `tests.slurm.submitit_program FOLDER MIB OPTIONS MEMORY`.

It prints the job's number. The training works without an end. When submitit tells it to, it writes
to FOLDER/saved how many steps it has done, and whether its GPU memory was right.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import submitit

from tests.emugpu.program_api import MIB, d, launch, ok, setup

STEP_NS = 20_000_000
WORD = 5


class Training:
    """As submitit's documents have one: callable, with a checkpoint."""

    def __init__(self, folder: Path, size: int):
        self.folder, self.size = folder, size
        self.step, self.memory = 0, 0

    def __call__(self) -> None:
        setup()
        self.memory = int(ok(d.cuMemAlloc(self.size)))
        ok(d.cuMemsetD32(self.memory, WORD, self.size // 4))
        (self.folder / "began").touch()
        while True:
            ok(launch("spin", STEP_NS))
            ok(d.cuCtxSynchronize())
            self.step += 1

    def checkpoint(self) -> Any:
        """submitit calls it in its handler of the signal."""
        host = bytearray(self.size)
        ok(d.cuMemcpyDtoH(host, self.memory, self.size))
        right = host == WORD.to_bytes(4, "little") * (self.size // 4)
        (self.folder / "saved.new").write_text(f"{self.step} {right}")
        (self.folder / "saved.new").rename(self.folder / "saved")
        return submitit.helpers.DelayedSubmission(Training(self.folder, self.size))


def main() -> int:
    folder, mib, options, memory = sys.argv[1:]
    executor = submitit.SlurmExecutor(folder=folder)
    executor.update_parameters(
        time=5,
        gres="shard:1",
        mem=memory,
        additional_parameters={"gpu_share": options},
        stderr_to_stdout=True,
    )
    print(executor.submit(Training(Path(folder), int(mib) * MIB)).job_id)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
