"""Credentials of MUNGE, by libmunge: who has made them, and that this was a moment ago.

Whoever has the cluster's key can make one. So a credential proves that a process of that user, on
a host of the cluster, has said what is in it. Only root can read one that is made here.
"""

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple

LIBRARY = "libmunge.so.2"
LONGEST = 4096  # bytes of a credential; of what is in one there are far fewer
# Of munge.h: options of a context, and the cipher that is used.
CIPHER, SOCKET, UID_RESTRICTION, AES128 = 0, 8, 9, 4
OK = 0


class Proven(NamedTuple):
    """What a credential says, and the user who has made it."""

    said: bytes
    uid: int


class Munge:
    """socket: munged's; "": its usual one. OSError, of all here: why it does not work."""

    def __init__(self, socket: str = ""):
        self.socket = socket
        self.library = ctypes.CDLL(LIBRARY)
        self.library.munge_ctx_create.restype = ctypes.c_void_p
        self.library.munge_strerror.restype = ctypes.c_char_p
        self.free = ctypes.CDLL(None).free
        self.free.argtypes = [ctypes.c_void_p]

    def encode(self, said: bytes) -> bytes:
        """A credential that says this, which root alone can read, or this user."""
        made = ctypes.c_void_p()
        context = self._context()
        try:
            self._set(context, CIPHER, ctypes.c_int(AES128))
            self._set(context, UID_RESTRICTION, ctypes.c_int(os.geteuid()))
            what = context, said, len(said)
            self._check(self.library.munge_encode(ctypes.byref(made), *what))
            return ctypes.string_at(made)
        finally:
            self.free(made)
            self.library.munge_ctx_destroy(context)

    def decode(self, credential: bytes) -> Proven:
        """What a credential says that has not been decoded on this host before. OSError also: it is
        none, or too old."""
        said, size, uid = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint32()
        context = self._context()
        found = ctypes.byref(said), ctypes.byref(size), ctypes.byref(uid), None
        try:
            self._check(self.library.munge_decode(credential, context, *found))
            return Proven(ctypes.string_at(said, size.value), uid.value)
        finally:
            self.free(said)
            self.library.munge_ctx_destroy(context)

    def _context(self) -> ctypes.c_void_p:
        context = ctypes.c_void_p(self.library.munge_ctx_create())
        if not context:
            raise MemoryError
        if self.socket:
            self._set(context, SOCKET, self.socket.encode())
        return context

    def _set(self, context: ctypes.c_void_p, option: int, value: object) -> None:
        self._check(self.library.munge_ctx_set(context, option, value))

    def _check(self, error: int) -> None:
        if error != OK:
            words = self.library.munge_strerror(error) or b"error %d" % error
            raise OSError(f"munge: {words.decode(errors='replace')}")
