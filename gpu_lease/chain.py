"""Components of a chain pass each other buffers on the GPU by handle (docs/chains.md).

    chain = Chain()
    buffer = chain.alloc(1 << 20)           # written by any library: torch.from_dlpack(buffer)
    pipe.send_bytes(chain.put(buffer))      # 64 bytes; the buffer is given away
    ...
    buffer = chain.get(pipe.recv_bytes())   # in another process of the chain
    buffer.drop()

A CUDA context has to be current. Any thread may call these functions.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_lease import dlpack, native

HANDLE_BYTES = 64
MOST_TAKERS = 65535
WAIT, NOW, LATER = 0, 1, 2
AUTO, GREEN, AFFINITY = 0, 1, 2


class ChainError(RuntimeError):
    """The sentence says what is wrong and what helps."""


class OutsideError(ChainError):
    """The process is in no job that shares a GPU."""


class ForgedError(ChainError):
    """No such handle was ever made."""


class OtherChainError(ChainError):
    """The handle is of another chain, or of a pool that has ended."""


class StaleError(ChainError):
    """All takers have the buffer, nobody took it in time, or it was lost."""


class DroppedError(ChainError):
    """This component does not hold the buffer any more."""


class FullError(ChainError):
    """The pool has no room."""


class LateError(ChainError):
    """The work on the buffer has not ended in time."""


class EndedError(ChainError):
    """The chain's keeper has ended."""


class ClosedError(ChainError):
    """This component has closed the chain, perhaps in another thread."""


class ForkedError(ChainError):
    """The chain was opened by the parent of this process."""


class LimitError(ChainError):
    """Too many components, buffers or takers, or too large a buffer."""


class CudaError(ChainError):
    """The driver has failed."""


class SystemFault(ChainError):
    """The system has failed."""


class PartError(ChainError):
    """The driver has no context with a part of the multiprocessors."""


class ArgumentError(ChainError, ValueError):
    """An argument says nothing that the call knows."""


# In the order of enum gpu_lease_chain_status.
_ERRORS: tuple[type[ChainError], ...] = (
    OutsideError, ForgedError, OtherChainError, StaleError, DroppedError, FullError, LateError,
    EndedError, ForkedError, LimitError, CudaError, SystemFault, PartError, ClosedError,
    ArgumentError,
)  # fmt: skip


class Part(NamedTuple):
    """What a component uses of its GPU: per cent of the multiprocessors, and how many they are, as
    the driver has rounded them. context: a CUcontext, which is current; stream: a CUstream of it
    that waits for no other one (torch.cuda.ExternalStream(part.stream))."""

    percent: int
    multiprocessors: int
    context: int
    stream: int


_missing = native.load(_ERRORS)


class Chain(native.Component):
    """A component's place in the chain of its job.

    Who comes first starts the chain's keeper, whose pool has at most pool_bytes (0: a quarter of
    the GPU); a handle that nobody takes for keep_s seconds is stale. For all others the two have no
    meaning.
    """

    def __init__(self, pool_bytes: int = 0, keep_s: int = 60) -> None:
        if _missing:
            raise OutsideError(f"{_missing}; gpu-lease is not installed on this host")
        self.number = native.library.open(pool_bytes, keep_s)
        self._end = weakref.finalize(self, _close, self.number, os.getpid())

    # These four are what an item needs, so each is one function in C (chain/python.c).
    if TYPE_CHECKING:

        def alloc(self, size: int, /, *, timeout: float | None = None) -> Buffer:
            """A new buffer of so many bytes. timeout: seconds to wait while the pool is full; None:
            as long as it takes. FullError: there was no room in time."""

        def put(
            self, buffer: Buffer, /, *, takers: int = 1, stream: int = 0, when: int = WAIT
        ) -> bytes:
            """Give the buffer away, and return its handle of 64 bytes, which so many components can
            get once each.

            when: WAIT for the stream's work (a CUstream as an integer); NOW: its work is over;
            LATER: the call does not wait, but who gets the buffer does.
            """

        def get(self, handle: bytes, /, *, timeout: float | None = None) -> Buffer:
            """The buffer of a handle. timeout: seconds to wait for work that was put with LATER;
            0: not at all. LateError: the work has not ended in time."""

        def drop(self, buffer: Buffer, /, *, stream: int = 0, when: int = WAIT) -> None:
            """Hold the buffer no more; when: as for put()."""

    def used(self) -> dict[str, int]:
        """What there is in the pool: limit, bytes, active and inactive buffers, members."""
        limit, size, active, inactive, members = native.library.used(self.number)
        return {
            "limit": limit,
            "bytes": size,
            "active": active,
            "inactive": inactive,
            "members": members,
        }

    def close(self) -> None:
        """Leave the chain; what this component still holds goes back to the pool."""
        self.number = 0
        self._end()

    def part(self, how: int = AUTO) -> Part:
        """The part of the multiprocessors that this component has from now on, under MPS; all of
        them until the daemon says otherwise. Call it before each item, from one thread, and submit
        the item's work in the context or the stream. how: GREEN contexts belong to the one that was
        current at first, with its memory and modules; AFFINITY makes contexts of their own; AUTO:
        green ones where the driver has them. PartError: it has none."""
        return Part(*native.library.part(self.number, how))

    def __enter__(self) -> Chain:
        return self

    def __exit__(
        self,
        _: type[BaseException] | None,
        __: BaseException | None,
        ___: TracebackType | None,
    ) -> None:
        self.close()


def _close(number: int, pid: int) -> None:
    if os.getpid() == pid:
        native.library.close(number)


class Buffer(native.Held):
    """Device memory that this component holds; as bytes, or as an array (array())."""

    __slots__ = ()

    if TYPE_CHECKING:
        chain: Chain

        @property
        def pointer(self) -> int:
            """The address on the device, the same as long as the buffer is held. DroppedError: it
            has been dropped or put."""

        @property
        def size(self) -> int:
            """Bytes. DroppedError: as above."""

        def drop(self, *, stream: int = 0, when: int = WAIT) -> None:
            """Hold it no more (Chain.drop())."""

    def array(self, shape: Sequence[int], typestr: str = "<f4") -> Array:
        """Its first bytes as an array of this shape; typestr: as numpy writes it."""
        return Array(self, tuple(shape), typestr)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.array((self.size,), "|u1").__cuda_array_interface__

    def __dlpack__(self, **options: Any) -> Any:
        return self.array((self.size,), "|u1").__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array((self.size,), "|u1").__dlpack_device__()


native.make(Buffer)


class Array:
    """A buffer's bytes as an array in C order, for torch.from_dlpack, jax.dlpack, CuPy and numba.

    An array that another library has made of it is valid while the buffer is held.
    """

    def __init__(self, buffer: Buffer, shape: tuple[int, ...], typestr: str) -> None:
        self.buffer, self.shape, self.typestr = buffer, shape, typestr
        size = dlpack.item_bytes(typestr)
        for n in shape:
            size *= n
        if size > buffer.size or any(n < 0 for n in shape):
            raise ValueError(
                f"an array of shape {shape} and type {typestr} has {size} bytes, "
                f"and the buffer {buffer.size}"
            )

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.typestr,
            "data": (self.buffer.pointer, False),
            "version": 3,
            "strides": None,
            "stream": None,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, dlpack.device_of(self.buffer.pointer)

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        """The buffer's work is over once it has been got, so no stream has to wait for it."""
        del stream
        return dlpack.capsule(
            self.buffer.pointer, self.shape, self.typestr, self.__dlpack_device__()[1]
        )
