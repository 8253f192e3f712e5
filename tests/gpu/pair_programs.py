"""The twelve programs whose pairs are measured: servers and trainings, by what they do in a step.

They are made of the kernels of kernels.ptx: `spin` for work that needs no memory (compute), `add`
for work that streams (most of inference's and training's time on a card). They are not the
programs of a site: their lengths, rates and copies are those of typical ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.gpu.build import KERNELS, build


@dataclass(frozen=True)
class Program:
    """kernel: spin, or add:MIB. ms: how long each of its kernels takes. kernels: of a step. mib_in,
    mib_out: copied in each. every_ms: a server, with a step so often; 0: a training. queued: steps
    of a training that are submitted ahead."""

    kernel: str
    ms: float
    kernels: int = 1
    mib_in: int = 0
    mib_out: int = 0
    every_ms: float = 0
    queued: int = 2

    @property
    def serves(self) -> bool:
        return self.every_ms > 0

    def command(self, slower: float, passes: int = 0) -> list[str]:
        """slower: 0 on a card. On the emulated GPU all takes so many times as long, and all kernels
        spin, as one that streams would take a CPU there. passes: of a kernel over its memory; 0:
        the program finds out how many take `ms`."""
        times = slower or 1
        kernel = "spin" if slower else self.kernel + f":{passes}" * (passes > 0)
        return [
            *(str(build("steps")), str(KERNELS), kernel),
            *(str(round(self.ms * times * 1e6)), str(self.kernels)),
            *(str(self.mib_in), str(self.mib_out), str(self.every_ms * times), str(self.queued)),
        ]


PROGRAMS = {
    "serve_small": Program("add:64", 0.5, every_ms=10),
    "serve_stream": Program("add:512", 3.1, every_ms=20),
    "serve_compute": Program("spin", 3.1, every_ms=10),
    "serve_long": Program("add:512", 12, every_ms=60),
    "serve_decode": Program("add:256", 0.25, kernels=40, every_ms=20),
    "serve_copies": Program("add:64", 1, mib_in=8, mib_out=8, every_ms=10),
    "train_small": Program("add:4", 0.05, kernels=64),
    "train_stream": Program("add:512", 2.2, kernels=4),
    "train_compute": Program("spin", 1, kernels=8),
    "train_steps": Program("add:256", 0.4, kernels=20, queued=1),
    "train_loader": Program("add:256", 2, mib_in=32, queued=1),
    "copies": Program("add:64", 0.2, mib_in=32, mib_out=32),
}
