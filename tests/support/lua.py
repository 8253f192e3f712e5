"""Lua as slurmctld has it, by its library; Slurm's packages bring one of these."""

from __future__ import annotations

import ctypes
import ctypes.util
from types import TracebackType

NAMES = ("liblua5.4.so.0", "liblua5.3.so.0", "liblua5.2.so.0", "liblua5.1.so.0", "liblua.so")
ALL_RESULTS = -1


class LuaError(Exception):
    """What Lua says is wrong."""


def library() -> ctypes.CDLL | None:
    """None: this machine has no Lua."""
    for name in NAMES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


class Lua:
    """One state of Lua; a context manager."""

    def __init__(self, found: ctypes.CDLL) -> None:
        self._lib = found
        found.luaL_newstate.restype = ctypes.c_void_p
        found.lua_tolstring.restype = ctypes.c_char_p
        self._state = ctypes.c_void_p(found.luaL_newstate())
        found.luaL_openlibs(self._state)

    def __enter__(self) -> Lua:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._lib.lua_close(self._state)

    def run(self, code: str) -> str | None:
        """What the code returns, as a text; None: nil. LuaError: it failed."""
        self._check(self._lib.luaL_loadstring(self._state, code.encode()))
        if hasattr(self._lib, "lua_pcallk"):
            status = self._lib.lua_pcallk(self._state, 0, ALL_RESULTS, 0, None, None)
        else:
            status = self._lib.lua_pcall(self._state, 0, ALL_RESULTS, 0)
        self._check(status)
        text = self._lib.lua_tolstring(self._state, -1, None)
        self._lib.lua_settop(self._state, 0)
        return text.decode() if text is not None else None

    def _check(self, status: int) -> None:
        if status:
            raise LuaError(self._lib.lua_tolstring(self._state, -1, None).decode())
