"""One rank of a job on several nodes: the ranks are a ring, and check each other's data.

In each step a rank works on its buffer, sends a part of it from its GPU to the next rank, and
compares what it gets from the rank before it with what that must have computed. So no rank gets
further than a step without the others. `NAME.RANK.pid` in the folder says which process it is,
`NAME.RANK.steps` has a byte for each step, and `NAME.RANK.done` is there when all were right. They
end once the file `NAME.0.end` is there. Who is which rank says srun, mpirun or torchrun. --mpi: the
data goes round by MPI, else by TCP. It needs the driver's library and MPI's, and nothing else.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import time
from array import array
from pathlib import Path

from tests.slurm.mpi import Mpi
from tests.support.plain_job import WORD, allocate, call

KERNELS = Path(__file__).resolve().parents[1] / "emugpu" / "kernels.ptx"
WORDS = 4096  # that go round
PERIOD = 65521  # words until the pattern comes again: a prime, so no two pages are equal
BITS = 0xFFFFFFFF
LAST = struct.Struct("q")  # before them: after which step all end
NEVER = 1 << 62
PLACES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
HELLO_S = 120.0


def place() -> tuple[int, int]:
    """This rank, and how many there are."""
    rank, size = next(names for names in PLACES if set(names) <= os.environ.keys())
    return int(os.environ[rank]), int(os.environ[size])


def port_of(file: Path) -> int:
    """Where a rank listens, once it has said so."""
    until = time.monotonic() + HELLO_S
    while not file.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"no {file}")
        time.sleep(0.01)
    return int(file.read_text())


class Ring:
    """Connections to the next rank, and from the one before."""

    def __init__(self, folder: Path, name: str, rank: int, size: int):
        self.after, self.before = ring(folder, name, rank, size)

    def exchange(self, data: bytes) -> bytes:
        """To the next rank; returns as many bytes of the one before."""
        self.after.sendall(data)
        return receive(self.before, len(data))

    def end(self) -> None:
        """What was sent arrives."""


def ring(folder: Path, name: str, rank: int, size: int) -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        half = folder / f"{name}.{rank}.half"
        half.write_text(str(server.getsockname()[1]))
        half.rename(folder / f"{name}.{rank}.port")
        port = port_of(folder / f"{name}.{(rank + 1) % size}.port")
        after = socket.create_connection(("127.0.0.1", port))
        before, _ = server.accept()
    return after, before


def computed(rank: int, step: int, rounds: int, words: int) -> bytes:
    """So many words of a rank's buffer, after so many steps."""
    base = 17 + (rank + 1) * rounds * step
    once = array("I", [(n * 2654435761 + base) & BITS for n in range(min(words, PERIOD))])
    return (once.tobytes() * (words // len(once) + 1))[: words * WORD]


def receive(before: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = before.recv(size - len(data))
        if not more:
            raise ConnectionResetError("the rank before this one has ended")
        data += more
    return data


def run(options: argparse.Namespace, rank: int, size: int, others: Ring | Mpi) -> None:
    """ValueError: another rank has sent what it cannot have computed."""
    call("cuInit", 0)
    buffer = allocate(KERNELS.read_bytes(), 0, options.bytes)
    buffer.write(computed(rank, 0, 0, buffer.words))
    step, last = 0, NEVER
    with (options.folder / f"{options.name}.{rank}.steps").open("ab", buffering=0) as steps:
        while step < last:
            step += 1
            if last == NEVER and (options.folder / f"{options.name}.0.end").exists():
                last = step + size  # by then all have heard of it
            buffer.launch(rank + 1, options.rounds)
            said = others.exchange(LAST.pack(last) + buffer.read(WORDS))
            last = min(last, *LAST.unpack(said[: LAST.size]))
            if said[LAST.size :] != computed((rank - 1) % size, step, options.rounds, WORDS):
                raise ValueError(f"step {step}: not what rank {(rank - 1) % size} has computed")
            steps.write(b".")
    if buffer.read(buffer.words) != computed(rank, step, options.rounds, buffer.words):
        raise ValueError("the whole buffer is not what it must be")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="which all ranks see")
    parser.add_argument("--name", required=True, help="of the job")
    parser.add_argument("--bytes", type=int, default=64 << 20, help="of the buffer")
    parser.add_argument("--rounds", type=int, default=1, help="how long a step takes")
    parser.add_argument("--mpi", action="store_true", help="data goes round by MPI")
    options = parser.parse_args()
    mpi = Mpi() if options.mpi else None
    rank, size = (mpi.rank, mpi.size) if mpi else place()
    (options.folder / f"{options.name}.{rank}.pid").write_text(str(os.getpid()))
    others = mpi or Ring(options.folder, options.name, rank, size)
    run(options, rank, size, others)
    others.end()
    (options.folder / f"{options.name}.{rank}.done").touch()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
