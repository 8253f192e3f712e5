"""Two processes that share device memory by CUDA IPC and know each other by messages alone.

`python -m tests.gpu.ipc_ranks LIBRARY [--mib N] [--ballast MIB] [--rounds N] [--mpi]` prints one
line of JSON. LIBRARY: cupy, or driver (cuda-bindings). With --mpi it is run by `mpirun -n 2` and
needs mpi4py; else it starts the other one itself, and they speak over a socket. In each round
each fills what it shares, the other one compares every word and writes what is next, and it
is compared here. The ballast is private to each, and compared at the end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
from collections.abc import Callable
from typing import Any, Protocol

from tests.gpu.workloads import is_interposed
from tests.support.together import zip_strict

GOLDEN = 2654435761
SMALL = (4096, 65536)  # bytes, beside the large one
PIECE_MIB = 256


class Peer(Protocol):
    """The other process."""

    def send(self, value: Any) -> None: ...
    def recv(self) -> Any: ...


class Mpi:
    """The other one of two ranks."""

    def __init__(self) -> None:
        from mpi4py import MPI  # type: ignore[import-not-found]

        self.comm = MPI.COMM_WORLD
        self.rank = int(self.comm.Get_rank())
        if self.comm.Get_size() != 2:
            raise SystemExit("two ranks are needed: mpirun -n 2")

    def send(self, value: Any) -> None:
        self.comm.send(value, dest=1 - self.rank)

    def recv(self) -> Any:
        return self.comm.recv(source=1 - self.rank)


class Library(Protocol):
    """What shares memory. Addresses are numbers; n counts words of 32 bits."""

    def allocate(self, n: int) -> int: ...
    def free(self, at: int) -> None: ...
    def handle(self, at: int) -> bytes: ...
    def open(self, handle: bytes) -> int: ...
    def close(self, at: int) -> None: ...
    def fill(self, at: int, n: int, value: int) -> None: ...
    def read(self, at: int, n: int) -> bytes: ...
    def wait(self) -> None: ...


class Cupy:
    """By its bindings of the runtime, as its users do it."""

    def __init__(self) -> None:
        import cupy  # type: ignore[import-not-found]

        self.cupy, self.runtime = cupy, cupy.cuda.runtime

    def allocate(self, n: int) -> int:
        return int(self.runtime.malloc(4 * n))

    def free(self, at: int) -> None:
        self.runtime.free(at)

    def handle(self, at: int) -> bytes:
        return bytes(self.runtime.ipcGetMemHandle(at))

    def open(self, handle: bytes) -> int:
        return int(self.runtime.ipcOpenMemHandle(handle))

    def close(self, at: int) -> None:
        self.runtime.ipcCloseMemHandle(at)

    def _array(self, at: int, n: int) -> Any:
        memory = self.cupy.cuda.UnownedMemory(at, 4 * n, self)
        pointer = self.cupy.cuda.MemoryPointer(memory, 0)
        return self.cupy.ndarray((n,), self.cupy.uint32, pointer)

    def fill(self, at: int, n: int, value: int) -> None:
        words = self._array(at, n)
        words[...] = self.cupy.arange(n, dtype=self.cupy.uint32)
        words *= self.cupy.uint32(GOLDEN)
        words += self.cupy.uint32(value)

    def read(self, at: int, n: int) -> bytes:
        return bytes(self._array(at, n).get().tobytes())

    def wait(self) -> None:
        self.runtime.deviceSynchronize()


class Driver:
    """By cuda-bindings; the kernel is that of the emulated GPU's tests."""

    def __init__(self) -> None:
        from tests.emugpu import program_api

        self.p, self.d = program_api, program_api.d
        program_api.setup()

    def allocate(self, n: int) -> int:
        return int(self.p.ok(self.d.cuMemAlloc(4 * n)))

    def free(self, at: int) -> None:
        self.p.ok(self.d.cuMemFree(at))

    def handle(self, at: int) -> bytes:
        return self.p.ctypes.string_at(self.p.ok(self.d.cuIpcGetMemHandle(at)).getPtr(), 64)

    def open(self, handle: bytes) -> int:
        made = self.d.CUipcMemHandle()
        self.p.ctypes.memmove(made.getPtr(), handle, 64)
        return int(self.p.ok(self.d.cuIpcOpenMemHandle(made, 1)))

    def close(self, at: int) -> None:
        self.p.ok(self.d.cuIpcCloseMemHandle(at))

    def fill(self, at: int, n: int, value: int) -> None:
        self.p.ok(self.p.launch("fill", at, n, value, grid=256, block=256))

    def read(self, at: int, n: int) -> bytes:
        host = bytearray(4 * n)
        self.p.ok(self.d.cuMemcpyDtoH(host, at, len(host)))
        return bytes(host)

    def wait(self) -> None:
        self.p.ok(self.d.cuCtxSynchronize())


LIBRARIES: dict[str, Callable[[], Library]] = {"cupy": Cupy, "driver": Driver}


class Rank:
    """One of the two. Its digest is of all that it has read."""

    def __init__(self, library: Library, peer: Peer, chosen: argparse.Namespace) -> None:
        self.library, self.peer = library, peer
        self.wrong = 0
        self.digest = hashlib.sha256()
        self.words: dict[tuple[int, int], bytes] = {}
        self.sizes = [*(size // 4 for size in SMALL), chosen.mib << 18]
        self.own = [library.allocate(n) for n in self.sizes]
        pieces = [min(PIECE_MIB, chosen.ballast - at) for at in range(0, chosen.ballast, PIECE_MIB)]
        self.ballast = [(library.allocate(mib << 18), mib << 18) for mib in pieces]
        for i, (at, n) in enumerate(self.ballast):
            library.fill(at, n, i)
        peer.send([library.handle(at) for at in self.own])
        self.others = [library.open(handle) for handle in peer.recv()]

    def meet(self) -> None:
        """All that this one has submitted is done, and the other one's as well."""
        self.library.wait()
        self.peer.send("here")
        assert self.peer.recv() == "here"

    def compare(self, at: int, n: int, value: int) -> None:
        import numpy

        found = self.library.read(at, n)
        expected = numpy.arange(n, dtype=numpy.uint32) * numpy.uint32(GOLDEN) + numpy.uint32(value)
        self.wrong += int((numpy.frombuffer(found, numpy.uint32) != expected).sum())
        self.digest.update(found)

    def run_round(self, number: int) -> None:
        """Each writes to its own, and then to what it has opened."""
        values = [[1000003 * number + 101 * i + 7 * turn for turn in (0, 1)] for i in range(3)]
        for at, n, (first, _) in zip_strict(self.own, self.sizes, values):
            self.library.fill(at, n, first)
        self.meet()
        for at, n, (first, second) in zip_strict(self.others, self.sizes, values):
            self.compare(at, n, first)
            self.library.fill(at, n, second)
        self.meet()
        for at, n, (_, second) in zip_strict(self.own, self.sizes, values):
            self.compare(at, n, second)
        self.meet()

    def end(self) -> tuple[int, str]:
        for i, (at, n) in enumerate(self.ballast):
            self.compare(at, n, i)
        for at in self.others:
            self.library.close(at)
        self.meet()
        for at in self.own:
            self.library.free(at)
        return self.wrong, self.digest.hexdigest()


def run_rank(chosen: argparse.Namespace, peer: Peer) -> tuple[int, str]:
    rank = Rank(LIBRARIES[chosen.library](), peer, chosen)
    for number in range(chosen.rounds):
        rank.run_round(number)
    return rank.end()


def other_rank(chosen: argparse.Namespace, peer: Any) -> None:
    peer.send(run_rank(chosen, peer))


def report(chosen: argparse.Namespace, *found: tuple[int, str]) -> None:
    digests = {digest for _, digest in found}
    result = {
        "name": chosen.library,
        "interposed": is_interposed(),
        "digest": " and ".join(sorted(digests)),
        "wrong_words": sum(wrong for wrong, _ in found),
    }
    print(json.dumps(result), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("--mib", type=int, default=300, help="of the largest that each shares")
    parser.add_argument("--ballast", type=int, default=0, help="MiB of each, to carry along")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--mpi", action="store_true")
    chosen = parser.parse_args()
    if chosen.mpi:
        mpi = Mpi()
        found = run_rank(chosen, mpi)
        mpi.send(found)
        others = mpi.recv()
        if mpi.rank == 0:
            report(chosen, found, others)
        return
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    other = spawn.Process(target=other_rank, args=(chosen, there))
    other.start()
    there.close()
    found = run_rank(chosen, here)
    report(chosen, found, here.recv())
    other.join()


if __name__ == "__main__":
    main()
