"""Open MPI by its library, as far as a ring of ranks needs it."""

from __future__ import annotations

import ctypes

LIBRARY = "libmpi.so.40"


class Mpi:
    """Of this process. RuntimeError, of all here: MPI has failed."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(LIBRARY, mode=ctypes.RTLD_GLOBAL)
        self.world = self._object("ompi_mpi_comm_world")
        self.byte = self._object("ompi_mpi_byte")
        self._call("MPI_Init", None, None)
        self.rank, self.size = self._number("MPI_Comm_rank"), self._number("MPI_Comm_size")

    def _object(self, name: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(self.library, name)))

    def _call(self, name: str, *arguments: object) -> None:
        error = getattr(self.library, name)(*arguments)
        if error:
            raise RuntimeError(f"{name}: error {error}")

    def _number(self, name: str) -> int:
        found = ctypes.c_int()
        self._call(name, self.world, ctypes.byref(found))
        return found.value

    def exchange(self, data: bytes) -> bytes:
        """To the next rank; returns as many bytes of the one before."""
        got = ctypes.create_string_buffer(len(data))
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        sent = data, len(data), self.byte, after, 0
        self._call("MPI_Sendrecv", *sent, got, len(data), self.byte, before, 0, self.world, None)
        return got.raw

    def end(self) -> None:
        """All ranks have come here."""
        self._call("MPI_Finalize")
