"""CUDA IPC between the processes of one job on a real GPU, while another job takes turns with it.

`python -m tests.gpu.check_ipc [--only NAMES] [--kinds swap] [--gpu N]` on a machine with a GPU, as
root; `nccl` needs two. Each program runs bare, and as a job beside another one; both
do not fit on the capped device, so memory moves between their turns. Every word that one process
has written is compared by the other one. Prints a line a check and a table; writes ipc-GPU.json in
$OUT or build/bench. Exit status 1 if a check failed. Programs:

    driver, runtime   C, by cuIpc* and by cudaIpc*, with events
    bindings, cupy    Python, which know each other by a socket
    mpi               the same as ranks of mpirun with mpi4py, where there are both
    torch             torch.multiprocessing, with events; also a tensor that outlives its maker
    nccl              trainings over two GPUs, by cudaIpc and by NCCL's own mappings
    jobs              another job gets nothing by a handle
    managed           a job with memory:managed hears why it has no handle
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.gpu.build import KERNELS, build, build_all
from tests.gpu.check_swap import FASTEST_LINK, swapping
from tests.gpu.checks import Result, run_checks
from tests.gpu.jobs import (
    INTERPOSER,
    Job,
    JobFailed,
    Sharing,
    finish_all,
    framework_python,
    on_gpu,
    stopping,
)

GIB = 1 << 30
CAP_GIB, RIVAL_MIB, RIVAL_S = 10.0, 6144, 20.0
INVALID_VALUE = 1
# The job's own ballast and the rounds; so many that the two jobs take several turns.
C_SIZES = ("300", "2048", "60")
RANKS = ["--mib", "128", "--ballast", "2048", "--rounds", "30"]
TORCH = ["--mib", "300", "--ballast", "1024", "--rounds", "400"]
TURNS = 3
# On so small a device as the emulated one.
TINY_CAP_GIB, TINY_RIVAL_MIB = 0.2, 96
TINY = {
    "driver": ("4", "64", "30"),
    "bindings": ["--mib", "2", "--ballast", "64", "--rounds", "20"],
}
GANG_CAP_GIB, GANG_BALLAST_MIB, GANG_STEPS = 6, 3584, 1500
DEBUG = re.compile(r"\]: \d+\.\d+ ")  # what is said with GPU_LEASE_DEBUG
CHANNEL = re.compile(r"Channel \d.* via (\S+)")


def options(kind: str) -> str:
    return f"tq:1,lock:on,memory:{kind}"


def c_program(name: str, sizes: Sequence[str]) -> list[str]:
    return [str(build(name)), str(KERNELS), "pair", *sizes]


def ranks(library: str, sizes: Sequence[str] = RANKS) -> list[str]:
    return framework_python("-m", "tests.gpu.ipc_ranks", library, *sizes)


def rival(share: Sharing, chosen: argparse.Namespace, file: str) -> Job:
    """The other job, which checks each of its own words in every step."""
    if chosen.tiny:  # the runtime does not run on the emulated GPU
        sizes = ("1", str(TINY_RIVAL_MIB // 2), "60")
        command = c_program("ipc", sizes)
    else:
        command = [str(build("swapper")), str(RIVAL_MIB), str(RIVAL_S), file]
    return share.tenant("the other job", options("swap"), command, *where(chosen))


def where(chosen: argparse.Namespace) -> tuple[dict[str, str], str]:
    return on_gpu(chosen.gpu), str(chosen.gpu)


def judge(bare: dict[str, Any], results: list[dict[str, Any]], usage: list[Any]) -> Result:
    """results, usage: of the job, and of its rival."""
    shared, other = results
    equal = shared["digest"] == bare["digest"]
    wrong = [result["wrong_words"] for result in (bare, shared, other)]
    outlives = shared.get("outlives", True) or not bare.get("outlives", True)
    turns = [used["handoffs"] for used in usage]
    moved = [round(used["moved_bytes"] / GIB, 2) for used in usage]
    good = equal and not any(wrong) and outlives and min(turns) >= TURNS and min(moved) > 0
    said = [line for line in shared.get("interposer_said", []) if not DEBUG.search(line)]
    return {
        "good": good,
        "summary": f"digests equal: {equal}, words wrong {wrong}, handoffs {turns}, GiB moved "
        f"{moved}"
        + (f", outlives its maker: {shared['outlives']}" if "outlives" in shared else "")
        + (f", it said {said[0]!r}" if said else ""),
        "bare": bare,
        "jobs": results,
        "usage": usage,
    }


def check_program(command: list[str], kind: str, chosen: argparse.Namespace) -> Result:
    cap = TINY_CAP_GIB if chosen.tiny else CAP_GIB
    env, gpu = where(chosen)
    bare = Job.start("bare", command, env).result()
    # Quanta are not stretched for their handoffs, so there are many.
    with tempfile.NamedTemporaryFile() as file, swapping(cap, FASTEST_LINK) as share:
        other = rival(share, chosen, file.name)
        with stopping(other):
            job = share.tenant("two processes", options(kind), command, env, gpu)
            results = finish_all([job, other])
            usage = [share.usage(job), share.usage(other)]
    return judge(bare, results, usage)


def check_mpi(kind: str, chosen: argparse.Namespace) -> Result:
    library = "cupy" if importlib.util.find_spec("cupy") else "driver"
    if not shutil.which("mpirun") or not importlib.util.find_spec("mpi4py"):
        return {"good": True, "summary": "not run: there is no mpirun, or no mpi4py"}
    allowed = ["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]
    allowed += ["OMPI_MCA_rmaps_base_oversubscribe=1"]
    command = ["env", *allowed, "mpirun", "-n", "2", *ranks(library), "--mpi"]
    return check_program(command, kind, chosen)


# -- NCCL ---------------------------------------------------------------------------


def transports(directory: Path) -> list[str]:
    """How NCCL's processes reach each other, by what they have written."""
    text = "\n".join(file.read_text(errors="replace") for file in directory.iterdir())
    return sorted(set(CHANNEL.findall(text)))


def check_nccl(kind: str, cumem: str) -> Result:
    """Two trainings at once, each over the same two GPUs, without the way by host memory."""
    command = framework_python("-m", "tests.gpu.ddp", "--seconds", "1", "--steps", str(GANG_STEPS))
    command += ["--ballast", str(GANG_BALLAST_MIB)]
    with tempfile.TemporaryDirectory() as directory, swapping(GANG_CAP_GIB) as share:
        indices = [str(device["index"]) for device in share.devices()][:2]
        if len(indices) < 2:
            return {"good": True, "summary": "not run: there is one GPU"}
        gpus = ",".join(indices)
        env = {"CUDA_VISIBLE_DEVICES": gpus, "NCCL_CUMEM_ENABLE": cumem, "NCCL_SHM_DISABLE": "1"}
        env |= {"NCCL_P2P_LEVEL": "SYS"}
        alone = Job.start("ddp, bare", command, env).result()
        shared_env = env | {
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,P2P,NET",
            "NCCL_DEBUG_FILE": f"{directory}/%h.%p",
        }
        jobs = [
            share.tenant(f"ddp {n} of two", options(kind), command, shared_env, gpus)
            for n in range(2)
        ]
        results = finish_all(jobs)
        usage = [share.usage(job) for job in jobs]
        ways = transports(Path(directory))
    equal = {result["digest"] for result in results} == {alone["digest"]}
    moved = [round(used["moved_bytes"] / GIB, 2) for used in usage]
    return {
        "good": equal and min(moved) > 1 and bool(ways) and all("P2P" in way for way in ways),
        "summary": f"GPUs {gpus}, by {ways}: digests equal: {equal}, GiB moved {moved}",
        "bare": alone,
        "jobs": results,
        "usage": usage,
    }


# -- what is refused ----------------------------------------------------------------


def check_jobs(kind: str, chosen: argparse.Namespace) -> Result:
    cap = TINY_CAP_GIB if chosen.tiny else CAP_GIB
    program = [str(build("ipc")), str(KERNELS)]
    with swapping(cap) as share:
        offer = share.tenant("offer", options(kind), [*program, "offer"], *where(chosen))
        with stopping(offer):
            offer.wait_ready()
            handle, _ = offer.next_line(0)
            take = share.tenant("take", options(kind), [*program, "take", handle], *where(chosen))
            with stopping(take):
                error = take.result()["error"]
            offer.go()
            offer.finish()
    return {"good": error == INVALID_VALUE, "summary": f"another job hears error {error}"}


def check_managed(chosen: argparse.Namespace) -> Result:
    cap = TINY_CAP_GIB if chosen.tiny else CAP_GIB
    command = [str(build("ipc")), str(KERNELS), "offer"]
    with swapping(cap) as share:
        job = share.tenant("offer", options("managed"), command, *where(chosen))
        with stopping(job):
            try:
                job.finish()
                return {"good": False, "summary": "it was given a handle"}
            except JobFailed as fault:
                words = str(fault)
    said = [line for line in words.splitlines() if line.startswith(INTERPOSER)]
    said = [line for line in said if "memory:swap" in line]
    refused = "CUDA_ERROR_INVALID_VALUE" in words
    return {
        "good": refused and len(said) == 1,
        "summary": f"refused as by the driver: {refused}; it said {said}",
    }


def checks_of(kind: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """Those of one kind of memory."""
    if chosen.tiny:
        commands = {"driver": c_program("ipc", TINY["driver"])}
        commands |= {"bindings": ranks("driver", TINY["bindings"])}
    else:
        commands = {"driver": c_program("ipc", C_SIZES)}
        commands |= {"runtime": c_program("ipc_runtime", C_SIZES)}
        commands |= {"bindings": ranks("driver"), "cupy": ranks("cupy")}
        commands |= {"torch": framework_python("-m", "tests.gpu.ipc_torch", *TORCH)}
    checks: dict[str, Any] = {
        name: partial(check_program, command, kind, chosen) for name, command in commands.items()
    }
    checks["jobs"] = partial(check_jobs, kind, chosen)
    if not chosen.tiny:
        checks["mpi"] = partial(check_mpi, kind, chosen)
        checks["nccl"] = partial(check_nccl, kind, "0")
        checks["nccl_cumem"] = partial(check_nccl, kind, "1")
    return checks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names, with commas between; all")
    parser.add_argument("--kinds", default="swap", help="of memory, with commas between")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--tiny", action="store_true", help="what runs on the emulated GPU")
    chosen = parser.parse_args()
    build_all("ipc", *([] if chosen.tiny else ["ipc_runtime", "swapper"]))
    checks: dict[str, Any] = {}
    for kind in chosen.kinds.split(","):
        found = checks_of(kind, chosen)
        checks |= found if kind == "swap" else {f"{kind}_{name}": c for name, c in found.items()}
    checks["managed"] = partial(check_managed, chosen)
    only = chosen.only.split(",") if chosen.only else list(checks)
    return run_checks(f"ipc-{chosen.gpu}", checks, only)


if __name__ == "__main__":
    raise SystemExit(main())
