"""Start and stop the emulated GPU server, and ask it what it did."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "meson" / "tests" / "emugpu"
KERNELS = Path(__file__).resolve().parent / "kernels.ptx"
START_S = 60.0


def model_of(name: str) -> dict[str, float]:
    """What a file of models/ says in numbers."""
    lines = (Path(__file__).parent / "models" / f"{name}.ini").read_text().splitlines()
    pairs = [line.partition("=")[::2] for line in lines if re.match(r"\w+ *= *[0-9.]+ *$", line)]
    return {key.strip(): float(value) for key, value in pairs}


class EmulatedGpu:
    """emugpud in a directory; a context manager.

    directory: for its socket, short (a socket's path has at most 107 bytes).
    model: a file of models/ without its suffix. trace: keep who computed when. node: its devices
    have UUIDs that those of other nodes do not have.
    """

    def __init__(
        self,
        directory: Path,
        model: str = "emu-h200-small",
        devices: int = 1,
        trace: bool = False,
        node: int = 0,
    ):
        self.directory = directory.resolve()
        self.model = model
        self.devices = devices
        self.node = node
        self.trace_file = self.directory / "trace" if trace else None
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def env(self) -> dict[str, str]:
        """What a process needs in its environment to use the emulated GPU."""
        path = [str(BUILD), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        return {"EMUGPU_DIR": str(self.directory), "LD_LIBRARY_PATH": ":".join(path)}

    def __enter__(self) -> EmulatedGpu:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o755)
        command = [str(BUILD / "emugpud"), "--dir", str(self.directory)]
        command += ["--model", self.model, "--devices", str(self.devices)]
        command += ["--node", str(self.node)]
        if self.trace_file:
            command += ["--trace", str(self.trace_file)]
        read, write = os.pipe()
        try:
            with (self.directory / "emugpud.log").open("wb") as log:
                self.process = subprocess.Popen(
                    [*command, "--ready-fd", str(write)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[write],
                    start_new_session=True,
                )
            os.close(write)
            ready = select.select([read], [], [], START_S)[0] and os.read(read, 16)
        finally:
            os.close(read)
        if not ready:
            log_text = (self.directory / "emugpud.log").read_text()
            self.__exit__()
            raise RuntimeError(f"emugpud did not start: {log_text}")
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def _control(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(BUILD / "emugpud"), "--ctl", str(self.directory), *arguments],
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout

    def stats(self) -> dict[str, Any]:
        """{"devices": [...], "processes": [...], "groups": [...]}: bytes moved, ns busy, of ended
        processes too; the channel groups that are there now."""
        answer: dict[str, Any] = json.loads(self._control("stats"))
        return answer

    def fail(self, device: int, fault: str, value: int = 0) -> None:
        """Inject a fault: "lost" (off the bus, until "repaired"), "ecc" (breaks what runs there
        now) or "oom" (of the next allocation).

        Of the controls of channel groups: "controls-unknown" (none is supported), "control-once"
        (the next one that changes something fails), "stop-hangs" (a stop neither stops nor
        returns), "own-slice" (compute groups have `value` us, whatever is set), "channels" (later
        contexts have `value` compute channels), until "controls-work".

        Of process checkpoints: "lock", "checkpoint", "restore", "unlock": the next such call of a
        process that sees this device first fails, or the `value`-th one from now on.
        """
        self._control("fail", str(device), fault, str(value))

    def end_spins(self, device: int = 0) -> None:
        """Kernels that only spin, and have been submitted, take no more time than they have had:
        each is over as soon as it runs."""
        self.fail(device, "spins-end")

    @property
    def nvml_hangs(self) -> Path:
        """The file that is there once a call of NVML hangs."""
        return self.directory / "nvml-hangs"

    def xid(self, device: int, number: int) -> None:
        """NVML tells of this error of the device to who listens for them."""
        with (self.directory / "nvml-xids").open("a") as xids:
            xids.write(f"{device} {number}\n")

    def nvml(self, faults: Mapping[int | str, str]) -> None:
        """What NVML does wrong from now on, by device, or "all" for it as a whole: "hang",
        "crash", "error", "lost", "garbage", "mig", "exclusive". {}: nothing."""
        self.nvml_hangs.unlink(missing_ok=True)
        fresh = self.directory / "nvml-faults.new"
        fresh.write_text("".join(f"{where} {kind}\n" for where, kind in faults.items()))
        fresh.replace(self.directory / "nvml-faults")

    def trace(self) -> list[tuple[int, int, int, int]]:
        """(device, pid, start ns, end ns) of every slice that computed; needs trace=True."""
        assert self.trace_file is not None
        rows = self.trace_file.read_text().split("\n")[:-1]
        return [(int(d), int(p), int(s), int(e)) for d, p, s, e in (row.split() for row in rows)]
