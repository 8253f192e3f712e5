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

import ctypes
import os
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple

from gpu_lease import dlpack

HANDLE_BYTES = 64
LIBRARY = "/usr/lib/gpu-lease/libgpulease-chain.so"
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


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("pointer", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("index", ctypes.c_uint32),
        ("zero", ctypes.c_uint32),
    )


class _Use(ctypes.Structure):
    _fields_ = (
        ("limit", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("active", ctypes.c_uint32),
        ("inactive", ctypes.c_uint32),
        ("members", ctypes.c_uint32),
        ("zero", ctypes.c_uint32),
    )


class _Part(ctypes.Structure):
    _fields_ = (
        ("percent", ctypes.c_uint32),
        ("multiprocessors", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    )


class Part(NamedTuple):
    """What a component uses of its GPU: per cent of the multiprocessors, and how many they are, as
    the driver has rounded them. context: a CUcontext, which is current; stream: a CUstream of it
    that waits for no other one (torch.cuda.ExternalStream(part.stream))."""

    percent: int
    multiprocessors: int
    context: int
    stream: int


def _load() -> Any:
    path = os.environ.get("GPU_LEASE_CHAIN_LIBRARY", LIBRARY)
    try:
        library = ctypes.CDLL(path)
    except OSError as fault:
        raise OutsideError(f"{fault}; gpu-lease is not installed on this host") from None
    pointer, size, ms = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64
    buffer, count, when = ctypes.POINTER(_Buffer), ctypes.c_uint32, ctypes.c_int
    for name, arguments in {
        "open": (ctypes.POINTER(pointer), size, count),
        "alloc": (pointer, size, ms, buffer),
        "put": (pointer, buffer, count, pointer, when, ctypes.c_char_p),
        "get": (pointer, ctypes.c_char_p, ms, buffer),
        "drop": (pointer, buffer, pointer, when),
        "used": (pointer, ctypes.POINTER(_Use)),
        "part": (pointer, when, ctypes.POINTER(_Part)),
        "close": (pointer,),
    }.items():
        getattr(library, f"gpu_lease_chain_{name}").argtypes = arguments
    library.gpu_lease_chain_close.restype = None
    library.gpu_lease_chain_error.restype = ctypes.c_char_p
    return library


_library: list[Any] = []


def _functions() -> Any:
    if not _library:
        _library.append(_load())
    return _library[0]


def _ms(timeout: float | None) -> int:
    return -1 if timeout is None else int(max(0.0, timeout) * 1000)


class Chain:
    """A component's place in the chain of its job.

    Who comes first starts the chain's keeper, whose pool has at most pool_bytes (0: a quarter of
    the GPU); a handle that nobody takes for keep_s seconds is stale. For all others the two have no
    meaning.
    """

    def __init__(self, pool_bytes: int = 0, keep_s: int = 60) -> None:
        self._c = _functions()
        opened = ctypes.c_void_p()
        self._check(self._c.gpu_lease_chain_open(ctypes.byref(opened), pool_bytes, keep_s))
        self._opened = opened
        self._end = weakref.finalize(self, _close, self._c, opened, os.getpid())

    @property
    def _chain(self) -> ctypes.c_void_p:
        """ClosedError: it is no longer open."""
        if not self._end.alive:
            raise ClosedError("the chain has been closed; open it again")
        return self._opened

    def _check(self, status: int) -> None:
        if status:
            raise _ERRORS[status - 1](self._c.gpu_lease_chain_error().decode(errors="replace"))

    def alloc(self, size: int, *, timeout: float | None = None) -> Buffer:
        """A new buffer of so many bytes. timeout: seconds to wait while the pool is full; None: as
        long as it takes. FullError: there was no room in time."""
        found = _Buffer()
        self._check(
            self._c.gpu_lease_chain_alloc(self._chain, size, _ms(timeout), ctypes.byref(found))
        )
        return Buffer(self, found)

    def put(self, buffer: Buffer, *, takers: int = 1, stream: int = 0, when: int = WAIT) -> bytes:
        """Give the buffer away, and return its handle of 64 bytes, which so many components can
        get once each.

        when: WAIT for the stream's work (a CUstream as an integer); NOW: its work is over; LATER:
        the call does not wait, but who gets the buffer does.
        """
        held = buffer.held()
        handle = ctypes.create_string_buffer(HANDLE_BYTES)
        self._check(
            self._c.gpu_lease_chain_put(
                self._chain, ctypes.byref(held), takers, stream, when, handle
            )
        )
        buffer.gone()
        return handle.raw

    def get(self, handle: bytes, *, timeout: float | None = None) -> Buffer:
        """The buffer of a handle. timeout: seconds to wait for work that was put with LATER; 0: not
        at all. LateError: the work has not ended in time."""
        if len(handle) != HANDLE_BYTES:
            raise ForgedError(f"a handle has {HANDLE_BYTES} bytes, and this has {len(handle)}")
        found = _Buffer()
        self._check(
            self._c.gpu_lease_chain_get(
                self._chain, bytes(handle), _ms(timeout), ctypes.byref(found)
            )
        )
        return Buffer(self, found)

    def drop(self, buffer: Buffer, *, stream: int = 0, when: int = WAIT) -> None:
        """Hold the buffer no more; when: as for put()."""
        held = buffer.held()
        self._check(self._c.gpu_lease_chain_drop(self._chain, ctypes.byref(held), stream, when))
        buffer.gone()

    def used(self) -> dict[str, int]:
        """What there is in the pool: limit, bytes, active and inactive buffers, members."""
        found = _Use()
        self._check(self._c.gpu_lease_chain_used(self._chain, ctypes.byref(found)))
        return {name: getattr(found, name) for name, *_ in _Use._fields_[:-1]}

    def close(self) -> None:
        """Leave the chain; what this component still holds goes back to the pool."""
        self._end()

    def part(self, how: int = AUTO) -> Part:
        """The part of the multiprocessors that this component has from now on, under MPS; all of
        them until the daemon says otherwise. Call it before each item, from one thread, and submit
        the item's work in the context or the stream. how: GREEN contexts belong to the one that was
        current at first, with its memory and modules; AFFINITY makes contexts of their own; AUTO:
        green ones where the driver has them. PartError: it has none."""
        found = _Part()
        self._check(self._c.gpu_lease_chain_part(self._chain, how, ctypes.byref(found)))
        context, stream = found.context or 0, found.stream or 0
        return Part(found.percent, found.multiprocessors, context, stream)

    def __enter__(self) -> Chain:
        return self

    def __exit__(
        self,
        _: type[BaseException] | None,
        __: BaseException | None,
        ___: TracebackType | None,
    ) -> None:
        self.close()


def _close(library: Any, chain: ctypes.c_void_p, pid: int) -> None:
    if os.getpid() == pid:
        library.gpu_lease_chain_close(chain)


class Buffer:
    """Device memory that this component holds; as bytes, or as an array (array())."""

    def __init__(self, chain: Chain, buffer: _Buffer) -> None:
        self.chain = chain
        self._buffer: _Buffer | None = buffer

    def held(self) -> _Buffer:
        """DroppedError: it has been dropped or put."""
        if self._buffer is None:
            raise DroppedError("the buffer has been dropped or put; get or allocate another one")
        return self._buffer

    def gone(self) -> None:
        """The component does not hold it any more."""
        self._buffer = None

    @property
    def pointer(self) -> int:
        """The address on the device, the same as long as the buffer is held."""
        return int(self.held().pointer)

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self.held().size)

    def drop(self, *, stream: int = 0, when: int = WAIT) -> None:
        """Hold it no more (Chain.drop())."""
        self.chain.drop(self, stream=stream, when=when)

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
