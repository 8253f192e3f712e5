"""Device memory as a DLPack capsule (version 0 of its structs, which every library takes)."""

from __future__ import annotations

import ctypes
from typing import Any

CUDA = 2  # kDLCUDA
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_NAME = b"dltensor"
_POINTER_ATTRIBUTE_DEVICE = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_kept: dict[int, Any] = {}  # by address, what a capsule or its taker still refers to


def _delete(managed: Any) -> None:
    _kept.pop(ctypes.addressof(managed.contents), None)


def _end(capsule: int) -> None:
    """A capsule that nobody has taken ends; one that was taken has another name."""
    api = ctypes.pythonapi
    if api.PyCapsule_IsValid(ctypes.c_void_p(capsule), ctypes.c_char_p(_NAME)):
        get = api.PyCapsule_GetPointer
        get.restype = ctypes.c_void_p
        _kept.pop(get(ctypes.c_void_p(capsule), ctypes.c_char_p(_NAME)), None)


_DELETER, _DESTRUCTOR = _Deleter(_delete), _Destructor(_end)


def item_bytes(typestr: str) -> int:
    """Bytes of an item of a type as numpy writes it: <f4. ValueError: it is no such type."""
    known = typestr[:1] in ("<", "|", "=") and typestr[1:2] in _CODES and typestr[2:].isdigit()
    if not known or not 1 <= int(typestr[2:]) <= 16:
        raise ValueError(f"{typestr!r} is no type of an array; write <f4, <i8 or |u1, for example")
    return int(typestr[2:])


def device_of(pointer: int) -> int:
    """The number of the device that the memory is on."""
    driver, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    asked = driver.cuPointerGetAttribute(
        ctypes.byref(number), _POINTER_ATTRIBUTE_DEVICE, ctypes.c_uint64(pointer)
    )
    return 0 if asked else number.value


def capsule(pointer: int, shape: tuple[int, ...], typestr: str, device: int) -> Any:
    """A capsule of an array in C order."""
    size = item_bytes(typestr)
    dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    kind = _Type(_CODES[typestr[1]], 8 * size, 1)
    tensor = _Tensor(pointer, _Device(CUDA, device), len(shape), kind, dims, None, 0)
    managed = _Managed(tensor, None, _DELETER)
    _kept[ctypes.addressof(managed)] = managed, dims
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    return new(ctypes.byref(managed), ctypes.c_char_p(_NAME), _DESTRUCTOR)
