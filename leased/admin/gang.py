"""Which of the node's GPUs a step has, and how much of each its job sees."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

from _gpulease import lib

from leased.admin.shard_memory import Fences
from leased.base.errors import Refused
from leased.base.requests import Request, get_int, get_ints
from leased.config.options import ONLINE, Resolved, parse_amount
from leased.gpus.devices import Gpu, visible
from leased.leasing.leases import Leases

ALL = "100%"
GPUS = 4096  # no index is above this
MOST = int(lib.GL_MAX_DEVICES)  # of a gang: so many have room in a message of a process


class Gangs:
    """The gangs of steps. renumber: learns Slurm's indices of the GPUs; Refused: it cannot.
    online_memory: how much of a GPU an online job may have, as text."""

    def __init__(
        self,
        leases: Leases,
        renumber: Callable[[], None],
        online_memory: Callable[[], str] = lambda: ALL,
    ):
        self.leases = leases
        self.renumber = renumber
        self.online_memory = online_memory

    def of(self, request: Request) -> list[Gpu]:
        """The GPUs of a step. Refused: it has none that can be shared."""
        if get_int(request, "shards", 0, 2**20) == 0:
            raise Refused("--gpu-share without a shard", "add --gres=shard:1")
        wanted = get_ints(request, "gpus", GPUS, GPUS)
        if not wanted:
            raise Refused("the job has shards but no GPU", "see gres.conf: shards need GPUs")
        self.renumber()
        by_index = {gpu.index: gpu for gpu in self.leases.gpus.slurms()}
        unknown = [index for index in wanted if index not in by_index]
        if unknown:
            raise Refused(
                f"GPU {unknown[0]} of Slurm is not one of the {len(by_index)} that NVML shows",
                "compare gres.conf with nvidia-smi",
            )
        return [by_index[index] for index in sorted(set(wanted))]

    def refuse_wide(self, gang: Collection[object]) -> None:
        """Refused: the job would have more GPUs of the node than one can share."""
        if len(gang) > MOST:
            raise Refused(
                f"a job can share at most {MOST} GPUs of a node, and this one has {len(gang)}",
                f"ask for shards of at most {MOST} GPUs, or for whole GPUs (--gres=gpu:1)",
            )

    def refuse_faulty(self, gpus: Iterable[Gpu]) -> None:
        """Refused: one of them has a fault, so a new job would fail there."""
        for gpu in gpus:
            fault = self.leases.gpus.fault_of(gpu.uuid)
            if fault is not None:
                raise Refused(
                    f"GPU {gpu.index} takes no new jobs: {fault}",
                    "tell the administrator, and submit the job again for another node",
                )

    def totals(
        self,
        gpus: Iterable[Gpu],
        given: Resolved,
        said_before: Mapping[str, int] = MappingProxyType({}),
        fences: Fences = MappingProxyType({}),
    ) -> dict[str, int]:
        """By UUID, the bytes that the job sees as the device's total.

        said_before: what it was told already stays so. fences: what its shards stand for.
        """
        totals: dict[str, int] = {}
        for gpu in gpus:
            total = said_before.get(gpu.uuid) or self._total(gpu, given)
            fence = fences.get(gpu.uuid)
            totals[gpu.uuid] = min(total, fence.most) if fence else total
        return totals

    def _total(self, gpu: Gpu, given: Resolved) -> int:
        beside = len(self.leases.tenants.sharing(gpu.uuid))
        overhead = self.leases.gpus.overheads[gpu.uuid]
        most = visible(gpu, overhead, beside + 1)
        if given.job_class == ONLINE:
            most = min(most, max(1, parse_amount(self.online_memory(), gpu.memory)))
        return given.visible_of(most)
