"""A status as the daemon gives it, and names as Slurm and the node have them, made by hand."""

from __future__ import annotations

from leased.api.answers import Chain, Device, Status, Tenant
from leased.chains.optimiser import KEEPS
from leased.cli.names import Names

GIB = 1 << 30
STATES = ("holds", "waits", "waits", "idle")
WHY = "gpu-leased-copies keeps copies of it in the node's memory"


CHAIN: Chain = {
    "name": "video",
    "components": [
        {"job": "7", "pid": 70 + place, "part": part} for place, part in enumerate((1.0, 0.3, 1.0))
    ],
    "by": "slices",
    "calls_s": 120.0,
    "why": KEEPS,
    "bottleneck": 0,
    "gain": 0.105,
    "trials": [1.0, 0.7, 0.9, 1.1, 1.01, 1.11],
    "plain": [0, 4],
    "kept": [3, 5],
    "bound": 22,
}


def device(index: int, holder: int, waiting: list[int]) -> Device:
    return {
        "index": index, "uuid": f"GPU-{index}", "name": "NVIDIA H200", "memory_bytes": 141 * GIB,
        "usable_bytes": 138 * GIB, "reserve_bytes": None, "overhead_bytes": 3 * GIB,
        "tenant_bytes": 180 * GIB, "resident_bytes": 120 * GIB, "fits": False,
        "holders": [holder], "waiting": waiting, "quantum_left_s": 42.5 if waiting else None,
        "lock": None, "quantum_s": None, "policy": "fcfs", "mode": "exclusive",
        "why": "the jobs' memory does not fit together: they have 180 GiB, and the device has "
        "room for 138 GiB",
        "fault": None, "busy_percent": 97, "drain": None, "link_gib_s": 47.5, "paging_gib_s": 10.0,
    }  # fmt: skip


def tenant(job: int, state: str, gpu: int, lease_s: float, wait_s: float) -> Tenant:
    return {
        "job_id": job, "job": str(job), "uid": 1000 + job % 2, "lock": "auto", "memory": "swap",
        "memory_why": WHY, "quantum_s": 60.0, "copies_bytes": 0, "clients": 1, "state": state,
        "stopped": False, "parked": None, "epoch": None,
        "resident_bytes": {f"GPU-{gpu}": (job % 7 + 1) * 8 * GIB}, "kept_out": {},
        "gpus": {f"GPU-{gpu}": {"lease_s": lease_s, "wait_s": wait_s, "handoffs": job % 5,
                                "moved_bytes": 0}},
    }  # fmt: skip


def status(jobs: int = 4, gpus: int = 2, later: float = 0.0) -> Status:
    """later: so many seconds after the same one, in which holders held and waiters waited; each
    holder got its GPU twice."""
    found = [
        tenant(100 + n, STATES[n // gpus % len(STATES)], n % gpus, 40.0 + n, 500.0 * n)
        for n in range(jobs)
    ]
    for each in found:
        for used in each["gpus"].values():
            used["lease_s"] += later if each["state"] == "holds" else 0
            used["wait_s"] += later if each["state"] == "waits" else 0
            used["handoffs"] += 2 if later and each["state"] == "holds" else 0

    def of(state: str, gpu: int) -> list[int]:
        return [t["job_id"] for t in found if t["state"] == state and f"GPU-{gpu}" in t["gpus"]]

    return {
        "version": "0.2.0", "wire_version": 2, "uptime_s": 7300.0 + later, "store_fault": None,
        "nvml_fault": None, "settings": [], "strays": {}, "copies": None, "cluster": {},
        "limits": {"quantum_min_s": 0.03, "quantum_max_s": 600.0, "user_lock_off": True,
                   "user_oversub": False},
        "devices": [device(n, (of("holds", n) or [0])[0], of("waits", n)) for n in range(gpus)],
        "tenants": found,
    }  # fmt: skip


async def squeue(jobs: list[int]) -> dict[int, str]:
    return {job: f"train-{job}" for job in jobs}


def names() -> Names:
    return Names(squeue, users={1000: "ann"}, patient=True)
